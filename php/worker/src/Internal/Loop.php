<?php

declare(strict_types=1);

namespace Pronghorn\Internal;

use Pronghorn\Response;
use Pronghorn\WorkerSpoiled;
use Psr\Http\Message\ServerRequestInterface;

/** Takes call after call from a transport and sends what becomes of it. */
final class Loop
{
    private readonly \Closure $answer;
    private readonly \Closure $send;
    /** Null: calls are requests of PHP's own. */
    private ?Leftovers $leftovers = null;
    private bool $hasBegun = false;
    private ?Leaks $leaks = null;

    /** Of the call under way: its values are freed with it, since their destructors may throw. */
    private ?\Throwable $thrown = null;

    /** What a call has left can't be taken back, so this process gets no other one. */
    private bool $isSpoiled = false;

    /**
     * @param bool $survivesExit whether the extension can end a call at an `exit`, and not the
     *     process
     */
    public function __construct(
        private readonly Transport $transport,
        private readonly Output $output,
        private readonly Psr\Messages $messages,
        private readonly bool $survivesExit = false,
    ) {
        $this->answer = $this->answer(...);
        $this->send = $this->send(...);
        Attempt::survivesExit($survivesExit);
        $output->start();
    }

    /**
     * Answers calls until the server stops this worker.
     *
     * @param array<value-of<Kind>, Handler> $handlers
     */
    public function run(array $handlers): void
    {
        $http = $handlers[Kind::Http->value] ?? null;
        $front = $http instanceof HttpHandler && $http->isFrontController() ? $http : null;
        $resets = isset($handlers[Kind::Job->value]) || isset($handlers[Kind::Tcp->value]);
        $this->begin($front !== null, $resets);
        if ($this->transport instanceof Ring) {
            $this->runInExtension($this->transport, $handlers, $front);

            return;
        }
        while (!$this->isSpoiled && ($exchange = $this->transport->next()) !== null) {
            $this->serve($exchange, $handlers);
            $this->forget($exchange);
            $this->lookForLeaks();
        }
    }

    /**
     * The same, but most calls take no line of ours.
     *
     * @param array<value-of<Kind>, Handler> $handlers
     */
    private function runInExtension(Ring $ring, array $handlers, ?HttpHandler $front): void
    {
        $failed = $this->tellFailed(...);
        while (!$this->isSpoiled && ($next = $ring->serve($handlers, $failed, $this->output)) !== null) {
            if ($next instanceof HttpExchange && $front !== null) {
                Exchange::$current = $next;
                $next->handler = $front;
                $this->conclude($next, ...\Pronghorn\Internal\request_serve($next, $front->function));
            } elseif ($next instanceof Exchange) {
                $this->serve($next, $handlers);
            } else {
                $this->conclude(...$next);
            }
            $this->forget($next);
            $this->lookForLeaks();
        }
    }

    /** What belongs to a call is gone before the wait for the next one begins. */
    private function forget(mixed &$last): void
    {
        $isJob = $last instanceof JobExchange || $last instanceof TcpExchange;
        // All of them go, whatever the destructor of one does.
        $values = [$last, $this->thrown];
        $last = $this->thrown = null;
        $this->drop($values);
        if ($this->leftovers !== null) {
            $this->isSpoiled = !$this->leftovers->settle() || $this->isSpoiled;
            $this->free($isJob ? $this->output->flush(...) : fn () => $this->output->settle(null));
        }
    }

    private function drop(mixed &$values, ?Exchange $exchange = null): void
    {
        $this->free(static function () use (&$values): void {
            $values = null;
        }, $exchange);
    }

    /** Destructors run there, and may throw or call `exit`: that ends no worker. */
    private function free(\Closure $work, ?Exchange $exchange = null): void
    {
        try {
            $this->survivesExit ? \Pronghorn\Internal\until_exit($work) : $work();
        } catch (\Throwable $thrown) {
            $this->output->tellDestructor($thrown, $exchange?->describe() ?? 'a call');
        }
    }

    /** What PHP has now is there again after each call. */
    private function begin(bool $front, bool $resets): void
    {
        if ($this->hasBegun) {
            return;
        }
        $this->hasBegun = true;
        $this->output->flush();
        if ($this->transport instanceof Ring && Requests::areWanted()) {
            Requests::takeOver($front, $this->output);
        } elseif ($front) {
            throw new BadWorker('A handler without a parameter takes the shared memory, which could not be attached.');
        } else {
            if ($this->survivesExit) {
                \Pronghorn\Internal\printed_watch($this->output, new Response());
            }
            $this->leftovers = new Leftovers(
                $this->transport,
                $this->output,
                native: $this->survivesExit,
                superglobals: new Superglobals(),
                resets: $resets && $this->survivesExit,
            );
        }
        if ($this->survivesExit) {
            $this->leaks = Leaks::watch($this->transport, $this->leftovers !== null);
        }
    }

    /** What the last call has left by now stays. */
    private function lookForLeaks(): void
    {
        $this->isSpoiled = ($this->leaks?->look() ?? false) || $this->isSpoiled;
    }

    /** The next call of an own loop. */
    public function next(): ?Exchange
    {
        $this->begin(false, false);
        $last = Exchange::$current;
        if ($last !== null) {
            $this->fail($last, new BadCall('Worker::next() was called again, and the call before has no reply.'));
        }
        $this->settle(null);
        $this->lookForLeaks();
        $exchange = $this->isSpoiled ? null : $this->transport->next();
        if ($exchange !== null) {
            $this->expectKind($exchange, $exchange instanceof HttpExchange);
            $exchange->loop = $this;
            $this->beginRequest($exchange);
        }

        return Exchange::$current = $exchange;
    }

    public function serverRequest(HttpExchange $exchange): ServerRequestInterface
    {
        return $this->messages->request($exchange);
    }

    public function reply(HttpExchange $exchange, mixed $reply): void
    {
        $this->expectOpen($exchange);
        try {
            Sender::send($exchange, $reply);
        } catch (\Throwable $thrown) {
            $this->error($exchange, $thrown);
        }
        $this->end($exchange);
    }

    public function fail(Exchange $exchange, \Throwable $thrown): void
    {
        $this->expectOpen($exchange);
        $thrown instanceof WorkerSpoiled ? $this->giveUp($exchange, $thrown) : $this->error($exchange, $thrown);
        $this->end($exchange);
    }

    public function stop(): void
    {
        $this->leftovers?->stop();
        $this->output->stop();
        if ($this->survivesExit) {
            \Pronghorn\Internal\printed_look_away();
        }
    }

    /** @param array<value-of<Kind>, Handler> $handlers */
    private function serve(Exchange $exchange, array $handlers): void
    {
        $handler = $exchange->handler = $handlers[$exchange->kind()->value] ?? null;
        $this->expectKind($exchange, $handler !== null);
        Exchange::$current = $exchange;
        $this->beginRequest($exchange);
        $place = null;
        if ($this->survivesExit) {
            $place = \Pronghorn\Internal\until_exit($this->answer, $exchange, $handler);
        } else {
            $this->answer($exchange, $handler);
        }
        $this->end($exchange, $place);
    }

    private function beginRequest(Exchange $exchange): void
    {
        if ($this->leftovers === null && $exchange instanceof HttpExchange) {
            \Pronghorn\Internal\request_begin($exchange);
        }
    }

    /** A handler has ended in the extension. */
    private function conclude(Exchange $exchange, int $how, mixed $value): void
    {
        $place = null;
        if ($how === Ring::RETURNED) {
            $place = \Pronghorn\Internal\until_exit($this->send, $exchange, $value);
        } elseif ($how === Ring::EXITED) {
            $place = $value;
        } elseif ($how === Ring::THREW) {
            $this->failed($exchange, $value);
        }
        $this->end($exchange, $place);
    }

    private function send(Exchange $exchange, mixed $result): void
    {
        try {
            $exchange->handler->send($exchange, $result);
        } catch (\Throwable $thrown) {
            $this->failed($exchange, $thrown);
        }
    }

    private function answer(Exchange $exchange, Handler $handler): void
    {
        try {
            $handler->answer($exchange);
        } catch (\Throwable $thrown) {
            $this->failed($exchange, $thrown);
        }
    }

    private function failed(Exchange $exchange, \Throwable $thrown): void
    {
        if ($thrown instanceof WorkerSpoiled) {
            $this->giveUp($exchange, $thrown);
        } elseif ($exchange->state === Exchange::DONE) {
            // By the destructor of a result, or by the handler of a signal while the reply waited
            // for room.
            $this->output->write("pronghorn: thrown after a reply: $thrown");
        } else {
            $this->error($exchange, $thrown);
        }
        $this->thrown = $thrown;
    }

    /** Without an answer: the end of this process tells the server. */
    private function giveUp(Exchange $exchange, WorkerSpoiled $thrown): void
    {
        $this->spoil($exchange, $thrown);
        $exchange->state = Exchange::DONE;
        $exchange->deferred = [];
    }

    private function spoil(Exchange $exchange, WorkerSpoiled $thrown): void
    {
        if (!$this->isSpoiled) {
            $this->output->write("pronghorn: this process ends with {$exchange->describe()}: $thrown");
        }
        $this->isSpoiled = true;
    }

    private function error(Exchange $exchange, \Throwable $thrown): void
    {
        if ($exchange instanceof GrpcExchange && $exchange->state === Exchange::STREAMING) {
            $exchange->breakOff(Failure::of($thrown));

            return;
        }
        $flags = $exchange->deferred === [] ? 0 : Native::BUSY;
        $exchange->beginReply();
        // Of a page that failed.
        $exchange instanceof HttpExchange && $this->output->rest();
        $exchange->transport->error($exchange->id, Failure::of($thrown), $flags);
        $exchange->state = Exchange::DONE;
    }

    /**
     * What follows a reply: deferred work, the end of what the call left in PHP, and the output
     * into the log.
     *
     * @param ?array{string, int} $place of the `exit` that has ended the call in its stead
     */
    private function end(Exchange $exchange, ?array $place = null): void
    {
        if ($place !== null) {
            LastWords::finish($exchange, $this->output, $place);
        }
        if ($exchange->deferred !== []) {
            try {
                $this->survivesExit
                    ? \Pronghorn\Internal\until_exit($this->defer(...), $exchange)
                    : $this->defer($exchange);
            } catch (\Throwable $thrown) {
                // The deadline, between two of them.
                $this->tellFailed($exchange, $thrown);
                $this->drop($thrown, $exchange);
            }
            $this->free(static function () use ($exchange): void {
                $exchange->deferred = [];
            }, $exchange);
            // The server is not told of one that ends that it is free.
            $this->isSpoiled || $exchange->transport->free($exchange->id);
        }
        $leaks = $this->leaks;
        $leaks === null || $this->free(static fn () => $leaks->collect($exchange), $exchange);
        $this->settle($exchange);
        Exchange::$current = null;
        // That of an object in a WeakMap whose key was the call.
        $this->free($exchange->close(...));
        $this->leaks?->ended($exchange);
    }

    private function settle(?Exchange $exchange): void
    {
        // Also before, because what a call has left in buffers may be printed now.
        $print = fn () => $this->output->settle($exchange);
        $this->free($print);
        if ($this->leftovers === null) {
            \Pronghorn\Internal\request_end();
        } else {
            $this->isSpoiled = !$this->leftovers->clear($exchange) || $this->isSpoiled;
        }
        $this->free($print);
        if (!$this->survivesExit) {
            $this->isSpoiled = $this->output->isStuck() || $this->isSpoiled;
        }
    }

    private function defer(Exchange $exchange): void
    {
        // Each is freed where it runs, since what it holds may throw as well, or `exit`.
        $next = static function () use ($exchange): void {
            (\array_shift($exchange->deferred))();
        };
        while ($exchange->deferred !== []) {
            try {
                // The next ones may clean up: an `exit` ends this one only.
                $this->survivesExit ? \Pronghorn\Internal\until_exit($next) : $next();
            } catch (\Throwable $thrown) {
                $this->tellFailed($exchange, $thrown);
                $this->drop($thrown, $exchange);
            }
        }
    }

    /** @return bool whether this process takes no other call */
    private function tellFailed(Exchange $exchange, \Throwable $thrown): bool
    {
        if ($thrown instanceof WorkerSpoiled) {
            $this->spoil($exchange, $thrown);
        } else {
            $this->output->write("pronghorn: deferred work of {$exchange->describe()} failed: $thrown");
        }

        return $this->isSpoiled;
    }

    /** The server was told which kinds this worker answers. */
    private function expectKind(Exchange $exchange, bool $isAnswered): void
    {
        if (!$isAnswered) {
            $kind = $exchange->kind()->value;
            throw new ProtocolError("a call of the kind `$kind`, which this worker does not answer");
        }
    }

    private function expectOpen(Exchange $exchange): void
    {
        if ($exchange->state !== Exchange::FRESH || $exchange !== Exchange::$current) {
            throw new BadCall('This call has been answered.');
        }
    }
}
