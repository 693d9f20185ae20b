"""The commands of the lab, one module each; `hk-backend` has them beside the others."""
