"""What every request passes before its handler: one middleware per module. `server.app` has their order."""
