"""The problems of the norm family, with the models that have them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from webnorm.op.op import Task
from webnorm.op.registry import OPS, options_of


@dataclass(frozen=True)
class FamilyProblem:
    """A problem with the model that has it. Problems that are not `tuned` have tuned nothing."""

    op: str
    sizes: tuple[int, ...]
    options: tuple[str, ...]
    model: str
    tuned: bool

    def task(self, dtype: str) -> Task:
        """Return the problem as a task, in a storage type."""
        op = OPS[self.op]
        return Task(op, op.problem(*self.sizes, dtype=dtype, options=options_of(op, self.options)))


def _unet(model: str, batch: int, tuned: bool, *levels: tuple[int, int]) -> Iterator[FamilyProblem]:
    for channels, side in levels:
        sizes = (batch, channels, side * side, 32)
        yield FamilyProblem("group_norm", sizes, ("activation=silu",), model, tuned)


# Sizes of group_norm: batch, channels, spatial, groups. The levels are channels and the side of an image.
PROBLEMS: tuple[FamilyProblem, ...] = (
    *_unet("SD 1.5 UNet", 16, True, (320, 64), (640, 32), (1280, 16), (1280, 8)),
    *_unet("SD 1.5 UNet", 16, False, (640, 64), (960, 64), (1920, 32), (2560, 16)),
    *_unet("SDXL UNet", 8, True, (320, 128), (1280, 32)),
    *_unet("SDXL UNet", 8, False, (640, 64), (960, 128), (1920, 64)),
    *_unet("FLUX VAE", 1, True, (512, 128), (256, 256), (128, 512)),
    *_unet("FLUX VAE", 1, False, (512, 64), (512, 256), (256, 512)),
    *_unet("FLUX VAE, 4 images", 4, False, (512, 128), (128, 512)),
    # Sizes: batch, tokens, query heads, key heads, elements between rows of queries and of keys, columns.
    FamilyProblem("qk_norm", (4, 4096, 32, 8, 1024, 0, 128), ("qkv",), "Qwen3-8B", True),
    FamilyProblem("qk_norm", (4, 4096, 16, 16, 1024, 0, 64), ("qkv",), "a ViT-L", True),
    FamilyProblem("qk_norm", (4, 4096, 16, 8, 2048, 0, 256), ("qkv",), "Gemma 3 12B", True),
    FamilyProblem("qk_norm", (2, 4608, 24, 24, 0, 0, 128), (), "FLUX", False),
    FamilyProblem("qk_norm", (8, 2048, 12, 12, 768, 0, 64), ("qkv",), "a ViT-B", False),
    FamilyProblem("qk_norm", (3, 5000, 8, 4, 1024, 0, 256), ("qkv",), "Gemma 3 4B", False),
    # Sizes: batch, rows, columns.
    FamilyProblem("modulated_norm", (64, 256, 1152), (), "DiT-XL/2", True),
    FamilyProblem("modulated_norm", (4, 4608, 3072), (), "FLUX", True),
    FamilyProblem("modulated_norm", (8, 4096, 1152), (), "PixArt", False),
    FamilyProblem("modulated_norm", (8, 4096, 1536), (), "SD 3", False),
    FamilyProblem("modulated_norm", (8, 4096, 2432), (), "SD 3.5 Large", False),
    FamilyProblem("modulated_norm", (8, 4096, 2304), (), "Lumina 2", False),
    # Sizes: batch, queries, columns.
    FamilyProblem("softmax", (8192, 1, 4096), (), "long contexts", True),
    FamilyProblem("softmax", (30000, 1, 1280), (), "a classifier", False),
    # Sizes: rows, columns.
    FamilyProblem("l2_norm", (65536, 768), (), "sentence embeddings", True),
    FamilyProblem("l2_norm", (20000, 2048), (), "other embeddings", False),
    # Sizes: rows, heads, columns.
    FamilyProblem("gated_norm", (16384, 32, 128), (), "Qwen3-Next", True),
    FamilyProblem("gated_norm", (8192, 1, 5120), ("order=gate_first",), "Mamba-2", True),
    FamilyProblem("gated_norm", (20000, 16, 128), (), "a smaller Qwen3-Next", False),
    FamilyProblem("gated_norm", (12288, 8, 512), ("order=gate_first",), "Mamba-2 in 8 groups", False),
    # Gradients, with the sizes of the norms.
    FamilyProblem("group_norm_backward", (8, 320, 4096, 32), ("activation=silu",), "SD 1.5 UNet", True),
    FamilyProblem("group_norm_backward", (8, 1280, 256, 32), ("activation=silu",), "SD 1.5 UNet", True),
    FamilyProblem("group_norm_backward", (8, 640, 1024, 32), ("activation=silu",), "SD 1.5 UNet", False),
    FamilyProblem("group_norm_backward", (4, 320, 16384, 32), ("activation=silu",), "SDXL UNet", False),
    FamilyProblem("qk_norm_backward", (4, 4096, 32, 8, 1024, 0, 128), ("qkv",), "Qwen3-8B", True),
    FamilyProblem("qk_norm_backward", (4, 4096, 16, 8, 2048, 0, 256), ("qkv",), "Gemma 3 12B", True),
    FamilyProblem("qk_norm_backward", (2, 4608, 24, 24, 0, 0, 128), (), "FLUX", False),
    FamilyProblem("qk_norm_backward", (8, 2048, 12, 12, 768, 0, 64), ("qkv",), "a ViT-B", False),
    FamilyProblem("modulated_norm_backward", (64, 256, 1152), (), "DiT-XL/2", True),
    FamilyProblem("modulated_norm_backward", (2, 4608, 3072), (), "FLUX", True),
    FamilyProblem("modulated_norm_backward", (8, 4096, 1152), (), "PixArt", False),
    FamilyProblem("modulated_norm_backward", (4, 4096, 2304), (), "Lumina 2", False),
    FamilyProblem("modulated_norm_backward", (4, 4096, 2432), (), "SD 3.5 Large", False),
)
