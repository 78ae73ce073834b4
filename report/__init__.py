"""From a saved run to tables, plots and a page; see `spectool report`. Runs no model."""
