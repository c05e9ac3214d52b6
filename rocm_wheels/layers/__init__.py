"""Layers: ROCm once, in wheels of its own, and frameworks thin over them."""

from rocm_wheels.layers.model import LayerOptions, LayersPlan
from rocm_wheels.layers.run import make_layers, plan_layers
from rocm_wheels.layers.write import write_layers

__all__ = ["LayerOptions", "LayersPlan", "make_layers", "plan_layers", "write_layers"]
