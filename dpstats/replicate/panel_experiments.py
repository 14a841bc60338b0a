"""The figures of the private synthetic control paper."""

from __future__ import annotations

from dpstats.replicate.claims import Claim, falls, higher, lower, slope
from dpstats.replicate.experiment import Experiment
from dpstats.replicate.panels import (
    bounds,
    linear_as_run,
    panel_methods,
    text_panel,
)

__all__ = ["PANEL_EXPERIMENTS"]

_SIZES = {"T0": (10, 100), "donors": (10, 100)}
_NOTES = (
    "the number of the figure and its printed values are not in the text at hand",
    "eps is the total, half for the weights (eps1) and half for the donors (eps2)",
)

_LAMBDA = Experiment(
    name="synth-lambda",
    title="DPSC: penalty, at eps1 = eps2 = 50",
    shows=(
        "Figure without a number here: sweep of lambda from 5 to 5000 at eps1 = eps2 = 50, "
        "linear panels with T0, n in {10, 100}, mean over 500 runs of the root mean squared error "
        "of three periods."
    ),
    axes={**_SIZES, "eps": (100.0,), "lambda": (5, 10, 50, 100, 500, 1000, 5000)},
    shared=("T0", "donors"),
    sample=linear_as_run,
    methods=panel_methods(ours=False),
    claims=(
        Claim(
            "Objective perturbation outperforms output perturbation.",
            lower("DPSC_obj", "DPSC_out"),
        ),
        Claim(
            "At eps1 = eps2 = 50 DPSC_out beats the constant 0.",
            lower("DPSC_out", "zero"),
            origin="here",
        ),
        Claim(
            "At eps1 = eps2 = 50 DPSC_obj beats the constant 0.",
            lower("DPSC_obj", "zero"),
            origin="here",
        ),
    ),
    x="lambda",
    panel="donors",
    average="mean",
    notes=_NOTES,
)

_EPS = Experiment(
    name="synth-eps",
    title="DPSC: budget, at lambda = T0",
    shows=(
        "Figure without a number here: sweep of eps from 2 to 200 at lambda = T0, linear panels "
        "with T0, n in {10, 100}, mean over 500 runs of the root mean squared error of three "
        "periods."
    ),
    axes={**_SIZES, "eps": (2.0, 4.0, 10.0, 20.0, 40.0, 100.0, 200.0)},
    shared=("T0", "donors"),
    sample=linear_as_run,
    methods=panel_methods(ours=True),
    claims=(
        Claim("The error of DPSC_out falls with eps.", falls("DPSC_out", "eps")),
        Claim("The error of DPSC_obj falls with eps.", falls("DPSC_obj", "eps")),
        Claim(
            "The cost of privacy is of order 1/eps (log-log slope above -1.25 for eps <= 20).",
            slope("DPSC_out", "eps", low=-1.25, high=0.0, where=lambda c: c["eps"] <= 20.0),
        ),
        Claim(
            "At eps <= 4 the error is too high for practical use: the constant 0 is better.",
            higher("DPSC_out", "zero", where=lambda c: c["eps"] <= 4.0),
        ),
        Claim(
            "Objective perturbation outperforms output perturbation.",
            lower("DPSC_obj", "DPSC_out"),
        ),
        Claim(
            "From eps = 40 on DPSC_out beats the constant 0.",
            lower("DPSC_out", "zero", where=lambda c: c["eps"] >= 40.0),
            origin="here",
        ),
        Claim(
            "moments beats DPSC_out everywhere.",
            lower("moments", "DPSC_out"),
            origin="here",
            arms=("default",),
        ),
        Claim(
            "did beats DPSC_out everywhere.",
            lower("did", "DPSC_out"),
            origin="here",
            arms=("default",),
        ),
    ),
    x="eps",
    panel="donors",
    average="mean",
    notes=(*_NOTES, "moments at T0 = 100 leaves out eps = 20, 40 and 100, to save time"),
)

_THEORY = Experiment(
    name="synth-theory",
    title="DPSC: measured error against the bounds, at lambda = T0",
    shows=(
        "Theorem 3.2 against practice: root mean squared error against the untreated signal beside "
        "the bound of the theorem, on the linear panel of the text."
    ),
    axes={"T0": (10, 100), "donors": (10,), "eps": (2.0, 4.0, 10.0, 20.0, 40.0, 100.0, 200.0)},
    shared=("T0", "donors"),
    sample=text_panel,
    methods=(
        *(
            method
            for method in panel_methods(ours=False)
            if method.arm in ("as shipped", "made private")
        ),
        *bounds(),
    ),
    claims=(
        Claim(
            "The published bound lies above the error of DPSC_out.",
            lower("DPSC_out", "published bound"),
            arms=("as shipped",),
        ),
        Claim(
            "It lies above the error with the noise that its privacy proof needs.",
            lower("DPSC_out published sensitivity", "published bound"),
            arms=("made private",),
        ),
        Claim(
            "The corrected bound lies above the error (exact sensitivity).",
            lower("DPSC_out", "output bound"),
            origin="here",
            arms=("made private",),
        ),
        Claim(
            "The corrected bound lies above the error of objective perturbation.",
            lower("DPSC_obj", "objective bound"),
            origin="here",
            arms=("made private",),
        ),
    ),
    x="eps",
    panel="T0",
    notes=(
        "the printed theorem is rebuilt from its constants, since its formula is not in the text "
        "at hand: E||v|| = a and E||W|| = b",
        "the target's signal is the mean of the donors', so that it has weights in the l1 ball",
    ),
)

PANEL_EXPERIMENTS: tuple[Experiment, ...] = (_LAMBDA, _EPS, _THEORY)
