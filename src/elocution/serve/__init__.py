"""Servers: rewards over KServe v2; speech over SGLang's and OpenAI's interfaces."""
