"""What people see of a model without writing code: the service, and the page of noise becoming text."""
