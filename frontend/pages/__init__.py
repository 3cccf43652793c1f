"""The pages of the site: views that ask a service, then draw a template."""
