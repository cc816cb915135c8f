"""Data contracts: what readers of an asset's published table can rely on."""
