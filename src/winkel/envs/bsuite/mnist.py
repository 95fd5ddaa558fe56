"""Classify a digit of MNIST's training set: one image, one action, ±1."""

import contextlib
import gzip
import hashlib
import http.client
import os
import urllib.request
import zlib
from collections.abc import Callable, Sequence
from functools import lru_cache
from operator import methodcaller
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Int8, PRNGKeyArray, UInt8

from winkel.envs.base import Experiment, Family, Setting, outcome
from winkel.envs.bsuite.common import PerturbedReward, perturbed, regret_of_wrong, reward_once
from winkel.errors import InputError, MissingDataError
from winkel.files import ensure_folder, write_atomically
from winkel.types import AnyArray, Dense, EnvStep

# A table, because XLA compiles division by a constant to a product, which rounds differently.
PIXELS = np.arange(-128, 128).astype(np.float32) / 255
MIRROR = "https://storage.googleapis.com/cvdf-datasets/mnist/"
IMAGES, LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"
# SHA-256 of the uncompressed content: the .gz files in circulation differ in their headers.
CHECKSUMS = {
    IMAGES: "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    LABELS: "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
}
Digits = tuple[UInt8[np.ndarray, "N 28 28"], UInt8[np.ndarray, " N"]]
"""Images and labels, read-only, because all callers share them."""


class DigitState(NamedTuple):
    """Index of the image, and whether the agent has answered."""

    image: Int[Array, ""]
    answered: Bool[Array, ""]


class Mnist(PerturbedReward):
    """A contextual bandit. Pixels are read as *signed* bytes, as in the original."""

    images: Int8[AnyArray, "N 28 28"]
    labels: Int[AnyArray, "N"]

    observation = Dense((28, 28))
    """Signed pixels over 255, in [−0.502, 0.498]; zeros after the answer."""
    num_actions = 10

    def draw_start(self, key: PRNGKeyArray, params: Any) -> Int[Array, ""]:
        return jax.random.randint(key, (), 0, len(self.labels))

    def start(self, draws: Int[Array, ""], episode: Int[Array, ""], params: Any) -> DigitState:
        return DigitState(image=draws.astype(jnp.int32), answered=jnp.zeros((), bool))

    def exact_transition(
        self, state: DigitState, action: Int[Array, ""], inner: None
    ) -> tuple[DigitState, EnvStep]:
        """Pay 1 for the label and −1 for another digit, and end."""
        right = action == jnp.asarray(self.labels)[state.image]
        reward = jnp.where(right, 1.0, -1.0)
        ended = jnp.ones((), bool)
        return state._replace(answered=ended), outcome(reward, ended, wrong=~right)

    def observe(self, state: DigitState, params: Any) -> Float[Array, "28 28"]:
        pixels = jnp.asarray(self.images)[state.image].astype(jnp.int32)
        return jnp.where(state.answered, 0.0, jnp.asarray(PIXELS)[pixels + 128])


def signed(images: AnyArray) -> Int8[np.ndarray, "N 28 28"]:
    """Read unsigned bytes as signed ones, as the original does."""
    return np.asarray(images, np.uint8).view(np.int8)


def _make_env(settings: Sequence[Setting]) -> Mnist:
    images, labels = load_mnist()
    return Mnist(images=signed(images), labels=labels.astype(np.int32))


def mnist_directory() -> Path:
    """Return the folder in WINKEL_MNIST, else the cache folder; no other is tried."""
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    directory = Path(os.environ.get("WINKEL_MNIST") or Path(cache, "winkel", "mnist"))
    return directory.expanduser().absolute()


def load_mnist() -> Digits:
    """Load the training set from `mnist_directory()`, once per process and folder."""
    return _load(mnist_directory())


@lru_cache(maxsize=2)
def _load(directory: Path) -> Digits:
    contents = {}
    for name in CHECKSUMS:
        path, contents[name] = read_idx(directory, name)
        if not is_official(name, contents[name]):
            raise InputError(f"{path} is not the official file; `winkel data mnist` fetches it")
    images = np.frombuffer(contents[IMAGES], np.uint8, offset=16).reshape(-1, 28, 28)
    return images, np.frombuffer(contents[LABELS], np.uint8, offset=8)


def is_official(name: str, content: bytes) -> bool:
    """Return whether this is the uncompressed content of the official file."""
    return hashlib.sha256(content).hexdigest() == CHECKSUMS[name]


def read_idx(directory: Path, name: str) -> tuple[Path, bytes]:
    """Return the path, plain or else .gz, and the content, which may be compressed in either."""
    for path in (directory / name, directory / f"{name}.gz"):
        try:
            content = path.read_bytes()
            return path, gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content
        except (FileNotFoundError, NotADirectoryError):
            continue
        except (OSError, EOFError, zlib.error) as error:
            raise InputError(f"cannot read {path}: {error}") from error
    raise MissingDataError(
        f"no {name} (plain or .gz) in {directory}; `winkel data mnist` fetches MNIST, "
        "the variable WINKEL_MNIST names another folder"
    )


def fetch_mnist(directory: Path, progress: Callable[[str], None] = lambda _: None) -> None:
    """Download the files that are missing or wrong; only verified ones replace others."""
    for name in CHECKSUMS:
        with contextlib.suppress(InputError):  # missing, or not readable
            if is_official(name, read_idx(directory, name)[1]):
                continue
        ensure_folder(directory)
        progress(f"downloading {MIRROR}{name}.gz")
        try:
            with urllib.request.urlopen(f"{MIRROR}{name}.gz", timeout=20) as response:
                content = gzip.decompress(response.read())
            if not is_official(name, content):
                raise OSError("wrong checksum")
        except (OSError, EOFError, zlib.error, http.client.HTTPException) as error:
            raise InputError(
                f"cannot fetch {MIRROR}{name}.gz ({' '.join(str(error).split())}); "
                f"put {', '.join(CHECKSUMS)} (plain or .gz) into {directory} by hand"
            ) from error
        write_atomically(directory / name, methodcaller("write", content))


FAMILY = perturbed(
    Family(
        name="mnist",
        experiments=(Experiment("mnist", "mnist", 10_000, ("basic", "generalization"), [{}] * 20),),
        defaults={},
        make_env=_make_env,
        returns=reward_once(-1.0, 1.0),
        longest_episode=lambda _: 1,
        facts=("wrong",),
        info=regret_of_wrong,
    ),
    "generalization",
)
