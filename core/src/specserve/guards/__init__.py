"""What plugins bring, made safe to call: a fault costs what the part would have done, or ends one request."""
