"""When requests are sent, and how many run at once."""
