"""An LLM as judge of trajectories, behind any OpenAI-compatible server; `judge.Judge` is the way in."""
