"""Cross sections with a confounded treatment and a known effect."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pandas as pd

from dpstats.datasets.dataset import Bounds, Dataset
from dpstats.simulate.checks import FloatArray, RNGLike, choose, finite, whole

__all__ = ["PROCESSES", "ate"]

_MEANS = (2.0, 4.0, 2.0, 4.0)
_CORRELATION = 0.2
# Mean +- 2.5 sd, and the published intervals, which are symmetric about zero instead.
_X_BOUNDS: Bounds = {"x1": (-0.5, 4.5), "x2": (1.5, 6.5), "x3": (-0.5, 4.5), "x4": (1.5, 6.5)}
_X_PUBLISHED: Bounds = {"x1": (-4.5, 4.5), "x2": (-6.5, 6.5), "x3": (-4.5, 4.5), "x4": (-6.5, 6.5)}


@dataclass(frozen=True, slots=True)
class _Process:
    """P(W = 1 | z) = sigma(intercept + slopes'z + square z2^2), E(Y | W, z) = tau W + outcome'z.

    Attributes
    ----------
    summary : str
        One sentence for the description.
    intercept, square : float
    slopes, outcome : tuple of four floats
    noise_sd : float
        Standard deviation of the outcome's normal noise; 0 for a Bernoulli outcome, whose log odds
        are then tau W + outcome'z.
    y_centre, y_margin : float
        Public bounds of y are tau/2 + y_centre +- (abs(tau)/2 + y_margin).
    """

    summary: str
    intercept: float = 0.4
    slopes: tuple[float, float, float, float] = (-1.0, 0.5, -0.25, -0.1)
    square: float = 0.025
    outcome: tuple[float, float, float, float] = (0.1, -0.05, 0.05, -0.05)
    noise_sd: float = 0.02
    y_centre: float = 0.0
    y_margin: float = 0.5


PROCESSES: dict[str, _Process] = {
    "well_specified": _Process("The published process: mild confounding, good overlap."),
    "low_overlap": _Process(
        "The published process with twice the treatment coefficients: propensities near 0 and 1.",
        intercept=1.5,
        slopes=(-2.0, 1.0, -0.5, -0.2),
        square=0.05,
    ),
    # The root of P(W = 1) = .1, solved by quadrature and bisection.
    "unbalanced": _Process(
        "well_specified with the intercept moved so that one row in ten is treated.",
        intercept=-2.1877658818796393,
    ),
    "binary": _Process(
        "A 0/1 outcome; tau is the treatment's coefficient on the log odds.",
        outcome=(0.3, -0.2, 0.0, 0.0),
        noise_sd=0.0,
    ),
    "strong_confounding": _Process(
        "well_specified with outcome coefficients ten times larger and noise sd 1.",
        outcome=(1.0, -0.5, 0.5, -0.5),
        noise_sd=1.0,
        y_centre=-1.0,
        y_margin=5.0,
    ),
    "randomised": _Process(
        "A trial: treatment by a fair coin, outcome of well_specified.",
        intercept=0.0,
        slopes=(0.0, 0.0, 0.0, 0.0),
        square=0.0,
    ),
}

_DESCR = """Simulated cross section {name!r}
{rule}

{summary}

(z1, z2) is normal with means (2, 4), variances 1 and covariance .2; (z3, z4) an independent copy.
  P(W = 1) = sigma({intercept:.6g} {slopes} {square:+g} z2^2)
  {law}
Columns: y outcome, w treatment (0/1), x1 ... x4 the covariates z1 ... z4; {n} rows, tau = {tau:g}.
The true propensities are in the attribute `propensity`, not in a column.

Truth. {truth}

Public bounds. Mean +- 2.5 sd for the covariates; y in [{low:g}, {high:g}].
They are constants of the process, not found in the sample; rows outside are clipped.
`published_bounds` clips the covariates to +-(4.5, 6.5, 4.5, 6.5), as the source does.

Reference. Differentially Private Average Treatment Effect Estimation by Propensity Score Blocking
(the processes well_specified and low_overlap); the others are reconstructions or additions.
"""


def ate(
    name: str,
    n: int,
    *,
    rng: RNGLike = None,
    tau: float | None = None,
) -> Dataset:
    """Simulate a cross section whose treatment effect is known.

    Parameters
    ----------
    name : {"well_specified", "low_overlap", "unbalanced", "binary", "strong_confounding", \
"randomised"}
        The process, see Notes.
    n : int
        Rows, at least 1.
    rng : int, Generator, SeedSequence, BitGenerator or None
        Passed to :func:`numpy.random.default_rng`. A Generator is advanced; an int gives the same
        rows each time.
    tau : float, optional
        Treatment effect, in units of y; 2 by default. For ``"binary"`` the coefficient of the
        treatment on the log odds, .5 by default.

    Returns
    -------
    Dataset
        ``data`` of shape (n, 6) with float columns ``y x1 x2 x3 x4`` and ``w`` in {0, 1} (``y`` is
        an integer 0 or 1 for ``"binary"``); ``truth`` with the ATE, ATT, ATC and ATO (the effect
        in the overlap population, weights e(1 - e)); public ``bounds`` and ``published_bounds``;
        ``propensity`` of shape (n,).

    Raises
    ------
    DPStatsError
        An unknown name, or an `n` or `tau` that is no such number.

    Notes
    -----
    (z1, z2) ~ N((2, 4), [[1, .2], [.2, 1]]) and (z3, z4) is an independent copy. With the logistic
    function s,

    - well_specified: P(W = 1) = s(.4 - z1 + .5 z2 + .025 z2^2 - .25 z3 - .1 z4),
      Y = tau W + .1 z1 - .05 z2 + .05 z3 - .05 z4 + N(0, .02^2). The raw difference in means is
      about tau - .09.
    - low_overlap: P(W = 1) = s(1.5 - 2 z1 + z2 + .05 z2^2 - .5 z3 - .2 z4), same Y.
    - unbalanced: well_specified with intercept -2.18777, so that P(W = 1) = .1.
    - binary: treatment of well_specified, P(Y = 1) = s(tau W + .3 z1 - .2 z2).
    - strong_confounding: outcome coefficients (1, -.5, .5, -.5), noise sd 1; the raw difference is
      about tau - .9.
    - randomised: P(W = 1) = 1/2, outcome of well_specified.

    The effect is tau for everybody except for ``"binary"``, where the four truths are integrals.
    They are computed by the trapezoidal rule in three dimensions, which converges geometrically
    for analytic integrands [1]_; the error is below 1e-12.

    Bounds of y are tau/2 +- (abs(tau) + 1)/2, hence a half-width of 1.5 at tau = 2; (0, 1) for
    ``"binary"``; tau/2 - 1 +- (abs(tau)/2 + 5) for ``"strong_confounding"``, 3.2 standard
    deviations outside the mean of each arm, so that clipping moves the effect by less than .001.

    References
    ----------
    .. [1] Trefethen, L. N. and Weideman, J. A. C. (2014). The exponentially convergent trapezoidal
       rule. *SIAM Review* 56, 385-458. doi:10.1137/130932132

    Examples
    --------
    >>> from dpstats import simulate
    >>> sample = simulate.ate("unbalanced", 2000, rng=7)
    >>> sample.data.columns.tolist()
    ['y', 'w', 'x1', 'x2', 'x3', 'x4']
    >>> sample.bounds["y"], sample.truth["ATT"]
    ((-0.5, 2.5), 2.0)
    >>> risk = simulate.ate("binary", 10, rng=7).truth
    >>> round(risk["ATE"], 4), round(risk["ATT"], 4)
    (0.1212, 0.1216)
    """
    process = choose("name", name, PROCESSES)
    n = whole("n", n, 1)
    is_binary = process.noise_sd == 0.0
    tau = (0.5 if is_binary else 2.0) if tau is None else finite("tau", tau)
    generator = np.random.default_rng(rng)

    x = _covariates(generator, n)
    propensity = _sigmoid(_index(process, x))
    w = generator.random(n) < propensity
    mean = tau * w + x @ np.array(process.outcome)
    if is_binary:
        y = (generator.random(n) < _sigmoid(mean)).astype(np.int64)
        truth = _binary_truth(tau)
        y_bounds = (0.0, 1.0)
    else:
        y = mean + process.noise_sd * generator.standard_normal(n)
        truth = dict.fromkeys(("ATE", "ATT", "ATC", "ATO"), tau)
        centre, half = tau / 2 + process.y_centre, abs(tau) / 2 + process.y_margin
        y_bounds = (centre - half, centre + half)

    covariates = {f"x{j + 1}": x[:, j] for j in range(4)}
    return Dataset(
        name=name,
        data=pd.DataFrame({"y": y, "w": w.astype(np.int64), **covariates}),
        bounds={"y": y_bounds, **_X_BOUNDS},
        DESCR=_describe(name, process, n, tau, truth, y_bounds),
        source=f"dpstats.simulate.ate({name!r}, {n}, tau={tau})",
        truth=truth,
        published_bounds={"y": y_bounds, **_X_PUBLISHED},
        formula="y ~ x1 + x2 + x3 + x4",
        treat="w",
        propensity=propensity,
    )


def _covariates(generator: np.random.Generator, n: int) -> FloatArray:
    """Draw z of shape (n, 4): two independent pairs, correlated .2 within."""
    z = generator.standard_normal((n, 4))
    own = np.sqrt(1 - _CORRELATION**2)
    for first, second in ((0, 1), (2, 3)):
        z[:, second] = _CORRELATION * z[:, first] + own * z[:, second]
    z += np.array(_MEANS)
    return z


def _index(process: _Process, x: FloatArray) -> FloatArray:
    """Log odds of the treatment, shape (n,)."""
    linear = process.intercept + x @ np.array(process.slopes)
    index: FloatArray = linear + process.square * x[:, 1] ** 2
    return index


def _sigmoid(index: FloatArray) -> FloatArray:
    """Logistic function, without overflow."""
    value: FloatArray = 0.5 * (1.0 + np.tanh(0.5 * index))
    return value


@lru_cache(maxsize=64)
def _binary_integrals(tau: float) -> tuple[float, float, float, float]:
    """ATE, ATT, ATC and ATO of the binary process, on risk differences.

    Given (z1, z2) the treatment's index varies with (z3, z4) through one normal variable only, and
    the outcome does not vary with them, so three dimensions are enough: trapezoidal rule of step
    1/4 on [-9, 9] in each.
    """
    process = PROCESSES["binary"]
    step = 0.25
    grid = step * np.arange(-36, 37)
    weight = step * np.exp(-(grid**2) / 2) / np.sqrt(2 * np.pi)
    z1 = _MEANS[0] + grid[:, None]
    z2 = _MEANS[1] + _CORRELATION * grid[:, None] + np.sqrt(1 - _CORRELATION**2) * grid[None, :]
    _, _, s3, s4 = process.slopes
    sd = np.sqrt(s3**2 + s4**2 + 2 * _CORRELATION * s3 * s4)
    index = (
        process.intercept
        + process.slopes[0] * z1
        + process.slopes[1] * z2
        + process.square * z2**2
        + s3 * _MEANS[2]
        + s4 * _MEANS[3]
    )
    e = _sigmoid(index[:, :, None] + sd * grid)
    treated, overlap = e @ weight, (e * (1 - e)) @ weight
    baseline = process.outcome[0] * z1 + process.outcome[1] * z2
    effect = _sigmoid(tau + baseline) - _sigmoid(baseline)

    def average(target: FloatArray) -> float:
        return float(weight @ (target * effect) @ weight / (weight @ target @ weight))

    return average(np.ones_like(treated)), average(treated), average(1 - treated), average(overlap)


def _binary_truth(tau: float) -> dict[str, float]:
    return dict(zip(("ATE", "ATT", "ATC", "ATO"), _binary_integrals(tau), strict=True))


def _describe(
    name: str,
    process: _Process,
    n: int,
    tau: float,
    truth: dict[str, float],
    y_bounds: tuple[float, float],
) -> str:
    outcome = " ".join(f"{c:+g} z{j + 1}" for j, c in enumerate(process.outcome) if c)
    law = (
        f"Y ~ Bernoulli(sigma({tau:g} W {outcome}))"
        if process.noise_sd == 0.0
        else f"Y = {tau:g} W {outcome} + N(0, {process.noise_sd:g}^2)"
    )
    heading = f"Simulated cross section {name!r}"
    return _DESCR.format(
        name=name,
        rule="=" * len(heading),
        summary=process.summary,
        intercept=process.intercept,
        slopes=" ".join(f"{c:+g} z{j + 1}" for j, c in enumerate(process.slopes)),
        square=process.square,
        law=law,
        n=n,
        tau=tau,
        truth=", ".join(f"{estimand} = {value:.6g}" for estimand, value in truth.items()) + ".",
        low=y_bounds[0],
        high=y_bounds[1],
    )
