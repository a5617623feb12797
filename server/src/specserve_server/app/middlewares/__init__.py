"""What every request passes before its handler: one middleware per module. `app.application` has their order."""
