"""Distributions to test with, and an independent look at programs."""

import contextlib
import threading

import jax
import jax.extend.core
import jaxtyping
import numpy as np
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from winkel.types import Atoms

KINDS = ("generic", "duplicates", "point_mass", "padded")


def random_atoms(rng, batch, num_atoms, kind="generic", low=-5.0, high=5.0):
    """Atoms [batch, num_atoms], unsorted and unevenly weighted, of one of KINDS."""
    locations = rng.uniform(low, high, (batch, num_atoms))
    probs = rng.dirichlet(np.ones(num_atoms), batch)
    if kind == "duplicates":
        locations = np.clip(np.round(locations), low, high)
    if kind == "point_mass":
        probs = np.eye(num_atoms)[rng.integers(num_atoms, size=batch)]
    if kind == "padded":
        held = rng.random((batch, num_atoms)) < 0.5
        held[np.arange(batch), rng.integers(num_atoms, size=batch)] = True
        probs = np.where(held, probs, 0.0)
        probs = probs / probs.sum(axis=-1, keepdims=True)
    return Atoms.of(locations, probs)


def mixed_atoms(rng, batch_per_kind, num_atoms, **limits):
    """All KINDS after one another: [batch_per_kind · len(KINDS), num_atoms]."""
    parts = [random_atoms(rng, batch_per_kind, num_atoms, kind, **limits) for kind in KINDS]
    return Atoms(*(np.concatenate(fields) for fields in zip(*parts, strict=True)))


def batched(function):
    """vmap in one compiled program; without jit each operation would be compiled on its own."""
    return jax.jit(jax.vmap(function))


def row(atoms, index):
    return Atoms(*(x[index] for x in atoms))


@st.composite
def distributions(draw, num_atoms, reach=10.0):
    """One distribution of a fixed number of atoms, duplicates and zero masses included."""
    locations = draw(
        arrays(
            np.float64,
            num_atoms,
            elements=st.floats(-reach, reach, width=32) | st.integers(-3, 3).map(float),
        )
    )
    weights = draw(
        arrays(np.float64, num_atoms, elements=st.integers(0, 8).map(float)).filter(np.any)
    )
    return Atoms.of(locations, weights / weights.sum())


def largest_intermediate(function, *arguments):
    """Number of elements of the largest array that a function computes on the way."""

    def sizes(jaxpr):
        for equation in jaxpr.eqns:
            for variable in equation.outvars:
                yield int(np.prod(variable.aval.shape))
            for parameter in jax.tree.leaves(
                equation.params, is_leaf=lambda x: isinstance(x, jax.extend.core.ClosedJaxpr)
            ):
                if isinstance(parameter, jax.extend.core.ClosedJaxpr):
                    yield from sizes(parameter.jaxpr)
                elif isinstance(parameter, jax.extend.core.Jaxpr):
                    yield from sizes(parameter)

    return max(sizes(jax.make_jaxpr(function)(*arguments).jaxpr))


@contextlib.contextmanager
def unchecked():
    """As users run it: jaxtyping's checks of shapes are off."""
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        yield
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)


@contextlib.contextmanager
def compilations():
    """Names of the programs that are compiled meanwhile, such as 'advance', with their threads."""
    found = []

    def listen(event, duration, **named):
        if event.endswith("backend_compile_duration"):
            name = named["fun_name"].removeprefix("jit(").removesuffix(")")
            found.append((name, threading.current_thread()))

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield found
    jax.monitoring.unregister_event_duration_listener(listen)
