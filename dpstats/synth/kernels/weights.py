"""Released donor weights and the prediction from them, shared by `output` and `objective`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np

from dpstats.errors import DPStatsError
from dpstats.passed import passed
from dpstats.synth.kernels.base import Errors, Parts, Public, Settings
from dpstats.synth.kernels.exact import check_penalty, match_targets
from dpstats.synth.kernels.paths import Residuals

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dpstats.privacy.accounting import Release
    from dpstats.privacy.mechanisms import Mechanisms, Noisy
    from dpstats.privacy.noise import FloatArray

__all__ = [
    "WeightsReleased",
    "add_vector",
    "project_l1",
    "release_prediction",
    "weight_settings",
    "within_reach",
]

_BITS = 30
_RELEASES = 500
_SMALLEST = 2.0**-60


@dataclass(frozen=True, slots=True)
class WeightsReleased:
    """Released weights and predictions, in scaled units.

    Attributes
    ----------
    donor_weights : ndarray
        Shape (g, n).
    post : ndarray
        Shape (g, T1): the noisy prediction.
    targets : ndarray
        Shape (g, T0): the public pre-periods.
    weight_sd, prediction_sd : float
        Noise sd of a weight and of a prediction, given the weights.
    projected : bool
        Whether weights were projected on the l1 ball and predictions clipped to their reach.
    release : {"projection", "matrix"}
    records : tuple of Release
    """

    donor_weights: FloatArray
    post: FloatArray
    targets: FloatArray
    weight_sd: float
    prediction_sd: float
    projected: bool
    release: Literal["projection", "matrix"]
    records: tuple[Release, ...]

    @property
    def exact(self) -> bool:
        """Whether nothing was added (`eps=inf`)."""
        return not self.records

    @property
    def any_target(self) -> bool:
        """Weights belong to the targets of the call."""
        return False

    def predict(self, targets: FloatArray) -> FloatArray:
        """Return counterfactual paths of the targets of the call; nan before the intervention."""
        rows = match_targets(targets, self.targets)
        return np.hstack([np.full((len(rows), self.targets.shape[1]), math.nan), self.post[rows]])

    def weights(self) -> FloatArray | None:
        """Return the released weights, shape (g, n)."""
        return self.donor_weights

    def placebo(self, targets: FloatArray, pre_periods: int) -> None:
        """Return None: it would need another release."""
        return

    def noise_sd(self) -> float:
        """Return a rough noise sd of the ATT: donors as large as their bounds allow (public)."""
        n, after = self.donor_weights.shape[1], self.post.shape[1]
        weights = self.weight_sd * math.sqrt(n)
        if self.projected:
            # two points of the l1 ball are at most 2 apart
            weights = min(weights, 2.0)
        sd = math.hypot(weights, self.prediction_sd / math.sqrt(after))
        return min(sd, 2.0) if self.projected else sd

    def errors(
        self, target: FloatArray, draws: int, rng: np.random.Generator, parts: Parts
    ) -> Errors:
        """Simulate errors from released numbers and public ones only.

        Notes
        -----
        Neither the fit before the intervention nor the donors' outcomes are released. So the
        sampling error is that of the target about its own pre-period mean (too wide where the
        donors explain it), and new noise in the weights moves the prediction by its norm times a
        standard normal, as for donors at the bounds with signs at random. A rough interval.
        """
        before, after = self.targets.shape[1], self.post.shape[1]
        errors = np.zeros((draws, after))
        if parts != "privacy":
            deviations = target[:before] - target[:before].mean()
            model = Residuals.of(deviations, before + after, 0.0)
            errors -= model.draw(model.spread(draws, rng), rng)[:, before:]
        if parts != "sampling" and not self.exact:
            row = match_targets(target[None], self.targets)[0]
            moves = self._moves(self.donor_weights[row], min(draws, _RELEASES), rng)
            moves = np.resize(moves, draws)
            noise = (moves * rng.standard_normal(draws))[:, None]
            noise = noise + self.prediction_sd * rng.standard_normal((draws, after))
            if self.projected:
                # two predictions within reach are at most twice it apart
                noise = 2.0 * within_reach(noise / 2.0, self.donor_weights[[row]])
            errors += noise
        return Errors(errors, errors.mean(axis=1))

    def _moves(self, weights: FloatArray, draws: int, rng: np.random.Generator) -> FloatArray:
        moved = np.empty(draws)
        for i in range(draws):
            again = weights + self.weight_sd * rng.standard_normal(weights.size)
            if self.projected:
                again = project_l1(again)
            moved[i] = np.linalg.norm(again - weights)
        return moved


def weight_settings(
    name: str, penalty: float | None, options: Mapping[str, Any], public: Public
) -> Settings:
    """Return the settings of a method that releases weights; lambda = T0 where it is open."""
    strange = [key for key in options if key not in ("release", "project", "target_norm")]
    if strange:
        raise DPStatsError(f"method {name!r} has no option {', '.join(map(repr, strange))}")
    release = options.get("release", "projection")
    if release not in ("projection", "matrix"):
        raise DPStatsError(f"`release` must be 'projection' or 'matrix'; got {passed(release)}")
    project = options.get("project", True)
    if not isinstance(project, bool | np.bool_):
        raise DPStatsError(f"`project` must be True or False; got {passed(project)}")
    norm = options.get("target_norm", "own")
    if norm not in ("own", "bound"):
        raise DPStatsError(f"`target_norm` must be 'own' or 'bound'; got {passed(norm)}")
    exact = math.isinf(public.epsilon)
    penalty = check_penalty(penalty, zero=exact)
    if penalty is None and (public.bounded or not exact):
        penalty = float(public.pre_periods)
    kept = {"project": bool(project), "target_norm": norm}
    return Settings(penalty, cast("Literal['projection', 'matrix']", release), not exact, kept)


def project_l1(vector: FloatArray, radius: float = 1.0) -> FloatArray:
    """Return the nearest point of the l1 ball (Duchi et al. 2008)."""
    size = np.abs(vector)
    if size.sum() <= radius:
        return vector
    ordered = np.sort(size)[::-1]
    excess = np.cumsum(ordered) - radius
    count = np.arange(1, size.size + 1)
    # the largest entry always stays
    last = int(np.flatnonzero((ordered * count > excess) | (count == 1))[-1])
    return np.asarray(np.sign(vector) * np.maximum(size - excess[last] / (last + 1.0), 0.0))


def add_vector(
    mechanisms: Mechanisms, name: str, values: FloatArray, sensitivity: float, rounding: float = 0.0
) -> tuple[Noisy, float]:
    """Add K-norm Laplace or Gaussian noise for an l2 sensitivity; return the entry's sd with it.

    Parameters
    ----------
    mechanisms : Mechanisms
    name : str
    values : ndarray
        Any shape; released as one vector.
    sensitivity : float
        Euclidean.
    rounding : float
        Added to it: what the computed value may be off.
    """
    sensitivity = max(sensitivity + rounding, _SMALLEST)
    flat = values.ravel()
    if mechanisms.source is not None and mechanisms.kind == "gaussian":
        # cut towards zero to a public grid: each entry moves by less than one step
        lattice = math.floor(math.log2(sensitivity)) - _BITS
        step = math.ldexp(1.0, lattice)
        noisy = mechanisms.additive(
            name,
            np.ldexp(np.trunc(np.ldexp(flat, -lattice)), lattice),
            l1=math.inf,
            l2=sensitivity + math.sqrt(flat.size) * step,
            lattice=lattice,
        )
        return noisy, noisy.scale
    noisy = mechanisms.knorm(name, flat, sensitivity=sensitivity)
    return noisy, noisy.scale * math.sqrt(flat.size + 1.0)


def within_reach(predictions: FloatArray, weights: FloatArray) -> FloatArray:
    """Clip predictions, shape (g, T1), to +-||f||_1: donors in [-1, 1] reach no further.

    Free: both are released.
    """
    reach = np.abs(weights).sum(axis=1, keepdims=True)
    return np.clip(predictions, -reach, reach)


def release_prediction(
    mechanisms: Mechanisms,
    post: FloatArray,
    weights: FloatArray,
    release: Literal["projection", "matrix"],
) -> tuple[FloatArray, float, tuple[Release, ...]]:
    """Release X_post'f for released weights.

    Parameters
    ----------
    mechanisms : Mechanisms
    post : ndarray
        Shape (n, T1), entries in [-1, 1].
    weights : ndarray
        Shape (g, n), released.
    release : {"projection", "matrix"}

    Returns
    -------
    ndarray, float, tuple of Release
        Predictions, shape (g, T1), the noise sd of one, and the record.

    Notes
    -----
    *projection.* Weights are public by now. Replacing donor i moves the predictions by the outer
    product of its weights with p - p', so by at most 2 sqrt(T1) times the largest norm of a
    donor's weights: noise in g T1 dimensions.

    *matrix.* As published: the donors' outcomes are released with noise, 2 sqrt(T1) in n T1
    dimensions, then multiplied.
    """
    after = post.shape[1]
    if release == "matrix":
        noisy, sd = add_vector(mechanisms, "prediction", post, 2.0 * math.sqrt(after))
        lengths = np.linalg.norm(weights, axis=1)
        predicted = weights @ noisy.value.reshape(post.shape)
        return predicted, sd * float(lengths.max(initial=0.0)), noisy.records
    largest = float(np.linalg.norm(weights, axis=0).max(initial=0.0))
    # sums of n products, rounded in double precision
    rounding = 2.0**-52 * len(post) * math.sqrt(weights.shape[0] * after) * largest
    rounding *= len(post)
    noisy, sd = add_vector(
        mechanisms, "prediction", weights @ post, 2.0 * math.sqrt(after) * largest, rounding
    )
    return noisy.value.reshape(len(weights), after), sd, noisy.records
