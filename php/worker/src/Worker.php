<?php

declare(strict_types=1);

namespace Pronghorn;

use Pronghorn\Internal\BadWorker;
use Pronghorn\Internal\Boot;
use Pronghorn\Internal\GrpcHandler;
use Pronghorn\Internal\Handler;
use Pronghorn\Internal\HttpHandler;
use Pronghorn\Internal\JobHandler;
use Pronghorn\Internal\Kind;
use Pronghorn\Internal\Loop;
use Pronghorn\Internal\ProtocolError;
use Pronghorn\Internal\Psr\Messages;
use Pronghorn\Internal\RawHandler;
use Pronghorn\Internal\Requests;
use Pronghorn\Internal\TcpHandler;
use Pronghorn\Internal\Zygote;
use Psr\Http\Server\RequestHandlerInterface;

/** What a worker script answers, and how. */
final class Worker
{
    /** @var array<value-of<Kind>, callable|RequestHandlerInterface> */
    private array $handlers = [];
    /** @var list<callable(): mixed> */
    private array $onStop = [];
    /** @var list<callable(): mixed> */
    private array $beforeFork = [];
    /** @var list<callable(): mixed> */
    private array $afterFork = [];
    /** @var list<object> */
    private array $factories = [];

    private ?Loop $loop = null;

    /**
     * Answers HTTP requests. The type of the handler's first parameter says how it wants them:
     * `Psr\Http\Message\ServerRequestInterface` or `Pronghorn\Request`.
     *
     * It returns a string, an iterable of strings (each is sent at once), an array (sent as JSON),
     * a {@see Response} or a PSR-7 response. What it prints comes before that. What it throws
     * becomes a 500, and the worker goes on.
     */
    public function onRequest(callable|RequestHandlerInterface $handler): static
    {
        $this->handlers[Kind::Http->value] = $handler;

        return $this;
    }

    /**
     * Answers raw calls: bytes of a service of one's own, which are answered by bytes. What the
     * handler throws fails the call, and the worker goes on; what it echoes goes to the log.
     *
     * @param callable(string): string $handler
     */
    public function onRaw(callable $handler): static
    {
        $this->handlers[Kind::Raw->value] = $handler;

        return $this;
    }

    /**
     * Runs jobs. A handler that returns has done its job, and what it returns goes to whoever waits
     * for it; after one that throws, the job runs again as its pipeline's `retry` says. What it
     * echoes goes to the log.
     *
     * @param callable(Job): mixed $handler
     */
    public function onJob(callable $handler): static
    {
        $this->handlers[Kind::Job->value] = $handler;

        return $this;
    }

    /**
     * Answers gRPC calls, with `Pronghorn\Grpc\Server` of pronghorn/grpc or by the messages as
     * bytes. What the handler throws ends the call with status 13, and the worker goes on; what it
     * echoes goes to the log.
     *
     * @param callable(GrpcCall): void $handler
     */
    public function onGrpc(callable $handler): static
    {
        $this->handlers[Kind::Grpc->value] = $handler;

        return $this;
    }

    /**
     * Answers clients of `tcp`. The handler returns what is sent to the client, or null;
     * {@see TcpConnection::close()} ends the connection after that, and so does what it throws.
     * What it echoes goes to the log.
     *
     * @param callable(TcpConnection): ?string $handler
     */
    public function onTcp(callable $handler): static
    {
        $this->handlers[Kind::Tcp->value] = $handler;

        return $this;
    }

    /**
     * Runs when the server has stopped this worker or is gone, after the last call. Not after
     * `exit()` or a fatal error: `register_shutdown_function` is for that.
     *
     * @param callable(): mixed $function
     */
    public function onStop(callable $function): static
    {
        $this->onStop[] = $function;

        return $this;
    }

    /**
     * With `spawn: fork`: runs once, in the process that has booted the application, before the
     * first worker is forked from it. It closes what processes must not share, such as connections
     * to a database.
     *
     * @param callable(): mixed $function
     */
    public function beforeFork(callable $function): static
    {
        $this->beforeFork[] = $function;

        return $this;
    }

    /**
     * With `spawn: fork`: runs in each worker before its first call. What it throws ends the
     * worker.
     *
     * @param callable(): mixed $function
     */
    public function afterFork(callable $function): static
    {
        $this->afterFork[] = $function;

        return $this;
    }

    /**
     * PSR-17 factories to make requests, streams and uploaded files with. Without it those of an
     * installed PSR-7 library are found: nyholm, guzzle, slim, laminas, httpsoft.
     */
    public function withFactories(object ...$psr17): static
    {
        $this->factories = \array_values($psr17);

        return $this;
    }

    /**
     * Calls are no requests of PHP's own, as with `globals: false`: for frameworks that make
     * requests and replies themselves, and set PHP up once in their life, maybe in the middle of a
     * call.
     */
    public function withoutGlobals(): static
    {
        Requests::turnOff();

        return $this;
    }

    /**
     * Answers calls until the server stops this worker or is gone, then returns. Without a server,
     * or with handlers that nobody can call, it says so on stderr and ends the process with exit
     * code 1.
     */
    public function run(): void
    {
        try {
            $messages = new Messages($this->factories);
            Boot::expectServer();
            $handlers = $this->handlers($messages);
            $http = $handlers[Kind::Http->value] ?? null;
            $loop = $this->open(
                \array_map(Kind::from(...), \array_keys($handlers)),
                $messages,
                $http instanceof HttpHandler ? $http : null,
            );
            $loop->run($handlers);
            $this->close();
        } catch (ConnectionLost) {
            $this->close();
        } catch (NotAWorker | BadWorker | ProtocolError $problem) {
            Boot::fail($problem->getMessage());
        }
    }

    /**
     * The next call, for an own loop instead of handlers; null when the server stops this worker or
     * is gone. Answer it with {@see Call::reply()} or {@see Call::fail()} before the next one is
     * asked for.
     *
     * @throws NotAWorker when this process was not started by Pronghorn
     */
    public function next(): ?Call
    {
        try {
            $loop = $this->loop ?? $this->open([Kind::Http], new Messages($this->factories));
            $call = $loop->next()?->call();
        } catch (ConnectionLost) {
            $call = null;
        }
        if ($call === null) {
            $this->close();
        }

        return $call;
    }

    /**
     * @return non-empty-array<value-of<Kind>, Handler>
     * @throws BadWorker
     */
    private function handlers(Messages $messages): array
    {
        $mode = Boot::mode();
        $kind = Kind::ofMode($mode);
        if (!isset($this->handlers[$kind->value])) {
            $why = "This pool runs `$mode` (RR_MODE), and the script has no handler for it.";
            throw new BadWorker("$why {$kind->cure()}");
        }
        $handlers = [];
        foreach ($this->handlers as $name => $handler) {
            $handlers[$name] = match (Kind::from($name)) {
                Kind::Http => $this->httpHandler($handler, $messages),
                Kind::Job => JobHandler::of($handler),
                Kind::Grpc => GrpcHandler::of($handler),
                Kind::Tcp => TcpHandler::of($handler),
                Kind::Raw => RawHandler::of($handler),
            };
        }

        return $handlers;
    }

    private function httpHandler(callable|RequestHandlerInterface $given, Messages $messages): HttpHandler
    {
        $handler = HttpHandler::of($given, $messages);
        if ($handler->wantsPsr) {
            $messages->prepare($handler->type);
        }

        return $handler;
    }

    /**
     * With `spawn: fork` all that follows is done by the forks.
     *
     * @param non-empty-list<Kind> $kinds
     * @throws NotAWorker
     */
    private function open(array $kinds, Messages $messages, ?HttpHandler $http = null): Loop
    {
        Zygote::serve($this->beforeFork, $this->afterFork, $http);

        return $this->loop = Boot::loop($kinds, $messages);
    }

    /** Runs what onStop() was given, once. */
    private function close(): void
    {
        $this->loop?->stop();
        while (($function = \array_shift($this->onStop)) !== null) {
            $function();
        }
    }
}
