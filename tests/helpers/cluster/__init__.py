"""Several machines with one warehouse in an object store: engines, projects, stores."""
