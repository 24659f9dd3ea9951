"""The `local` runtime: controller, learner, workers and evaluator as processes of this machine."""
