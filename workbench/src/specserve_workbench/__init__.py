"""The workbench: what examines, proves and writes plugins, and `specserve doctor`, which examines an installation."""
