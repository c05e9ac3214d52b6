"""From a pinned source to a wheel: builder image, container, stages, gates, canary."""
