"""From a body to choices and their text: what all APIs that generate have in common. Knows no HTTP."""
