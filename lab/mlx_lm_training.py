"""What training needs of mlx-lm: its Llama, and how it writes models."""

from spectool.runtime.mlx_lm_compat import mlx_lm  # first: it imports mlx-lm where few files may be open

# isort: split
from mlx_lm.models.llama import Model, ModelArgs
from mlx_lm.utils import dequantize_model, hf_repo_to_path, save_config, save_model
