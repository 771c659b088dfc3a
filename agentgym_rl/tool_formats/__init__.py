"""One module a form of tool calls in text; `agentgym_rl.tool_calls` is the way to them."""
