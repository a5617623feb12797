"""The bodies of requests: fields, types and limits of every API, and the names that are refused or ignored."""
