"""Processes that measure: a peer's driver, which stays and answers requests, and rondo, which runs once for each."""

import json
import os
import signal
import subprocess


class PeerFailed(Exception):
    """A driver that did not start, or ended; the text says why."""


class Driver:
    """A peer's driver in a process group of its own, stopped while it is not asked."""

    def __init__(self, command, log, environment=None):
        self.log = log
        with open(log, "wb") as errors:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                bufsize=1,
                start_new_session=True,
                env=os.environ | (environment or {}),
            )
        hello = self._answer()
        self.peer, self.version = hello["peer"], hello["version"]
        self._signal(signal.SIGSTOP)

    def _signal(self, number):
        os.killpg(self.process.pid, number)

    def _answer(self):
        line = self.process.stdout.readline()
        if line:
            return json.loads(line)
        code = self.process.wait()
        with open(self.log, encoding="utf-8", errors="replace") as file:
            last = [text.strip() for text in file if text.strip()][-1:] or ["no message"]
        raise PeerFailed(f"exit code {code}: {last[0][:200]} (all of it: {self.log})")

    def ask(self, request):
        self._signal(signal.SIGCONT)
        self.process.stdin.write(json.dumps(request) + "\n")
        answer = self._answer()
        self._signal(signal.SIGSTOP)
        return answer

    def close(self):
        if self.process.poll() is not None:
            return
        self._signal(signal.SIGCONT)
        self.process.stdin.close()
        try:
            self.process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self._signal(signal.SIGKILL)
            self.process.wait()


class Rondo:
    """The rondo binary; every measurement is a process of its own."""

    def __init__(self, binary, text_probe, threads):
        self.binary, self.text_probe, self.threads = binary, text_probe, threads

    def bench(self, what, *arguments, config=None):
        """The JSON lines of `rondo bench`. A later override replaces an earlier one, the threads too."""
        command = [self.binary, "bench", what, *([str(config)] if config else [])]
        command += [f"trainer.threads={self.threads}", *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(command)}: {done.stderr.strip()}")
        return [json.loads(line) for line in done.stdout.splitlines()]

    def tokenize(self, tokenizer, corpus):
        """Tokens and CPU seconds of one pass over the corpus."""
        done = subprocess.run(
            [self.text_probe, "speed", tokenizer, corpus], capture_output=True, text=True, check=True
        )
        tokens, seconds = done.stdout.split()
        return int(tokens), float(seconds)
