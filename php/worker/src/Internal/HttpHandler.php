<?php

declare(strict_types=1);

namespace Pronghorn\Internal;

use Pronghorn\HttpFoundation\Foundation;
use Pronghorn\Request;
use Psr\Http\Message\ServerRequestInterface;
use Psr\Http\Server\RequestHandlerInterface;

/** Answers HTTP requests. The type of its first parameter says how it wants them. */
final class HttpHandler extends Handler
{
    private const SHAPES = <<<'END'
        Accepted are
          fn (Psr\Http\Message\ServerRequestInterface $request): Psr\Http\Message\ResponseInterface
          fn (Pronghorn\Request $request): string|iterable|array|Pronghorn\Response
          fn (Symfony\Component\HttpFoundation\Request $request): Symfony\Component\HttpFoundation\Response
          an object that is a Psr\Http\Server\RequestHandlerInterface
          fn () => require 'public/index.php', whose output is the reply
        END;

    private const OF_SYMFONY = 'Symfony\Component\HttpFoundation\Request';

    /** @param class-string|'' $type of the first parameter; empty: there is none */
    private function __construct(
        \ReflectionFunction $reflection,
        \Closure $function,
        private readonly Psr\Messages $messages,
        public readonly bool $wantsPsr,
        public readonly string $type,
    ) {
        parent::__construct($function, (string) $reflection->getFileName(), (int) $reflection->getStartLine());
    }

    /** @throws BadWorker when nobody could call it */
    public static function of(callable|RequestHandlerInterface $handler, Psr\Messages $messages): self
    {
        $callable = $handler instanceof RequestHandlerInterface ? [$handler, 'handle'] : $handler;
        $function = \Closure::fromCallable($callable);
        $reflection = new \ReflectionFunction($function);
        $where = self::name($reflection);
        $parameters = $reflection->getParameters();
        if ($parameters === []) {
            $lacking = Requests::lacking();
            if ($lacking !== null) {
                throw new BadWorker(
                    "$where takes no parameter, so its output would be the reply. That takes the extension, and a"
                        . " pool with `globals` on: $lacking. hint: docs/reference/extension.md says how to get it;"
                        . " code with superglobals, echo and header() also runs in a pool with `mode: classic`.\n"
                        . self::SHAPES
                );
            }

            return new self($reflection, $function, $messages, false, '');
        }
        if ($reflection->getNumberOfRequiredParameters() > 1) {
            throw new BadWorker("$where takes more than one parameter.\n" . self::SHAPES);
        }
        foreach (self::names($parameters[0]->getType()) as $type) {
            if ($type === Request::class) {
                return new self($reflection, $function, $messages, false, $type);
            }
            if (self::isPsr($type)) {
                return new self($reflection, $function, $messages, true, $type);
            }
            if ($type === self::OF_SYMFONY) {
                return new self($reflection, self::ofSymfony($function, $where), $messages, false, Request::class);
            }
        }
        $type = $parameters[0]->getType();
        $taken = $type === null ? 'a parameter without a type' : "`$type`";
        throw new BadWorker("$where takes $taken, not a request.\n" . self::SHAPES);
    }

    /** @throws BadWorker */
    private static function ofSymfony(\Closure $function, string $where): \Closure
    {
        if (!\class_exists(Foundation::class)) {
            throw new BadWorker(
                "$where takes a request of Symfony, and there is no package pronghorn/http-foundation."
                    . " hint: `composer require pronghorn/http-foundation`\n" . self::SHAPES
            );
        }

        return Foundation::handler($function);
    }

    /** Whether its output is the reply. */
    public function isFrontController(): bool
    {
        return $this->type === '';
    }

    /** @param HttpExchange $exchange */
    public function answer(Exchange $exchange): void
    {
        $request = $this->wantsPsr ? $this->messages->request($exchange) : $exchange->request;
        $result = ($this->function)($request);
        Sender::send($exchange, $result);
    }

    /** @param HttpExchange $exchange */
    public function send(Exchange $exchange, mixed $result): void
    {
        Sender::send($exchange, $result);
    }

    public function function(): \Closure
    {
        return $this->wantsPsr
            ? fn (): mixed => Sender::ready(($this->function)($this->messages->request(Exchange::$current)))
            : $this->function;
    }

    /**
     * The interface, one that it extends, or a class of requests. The interface need not be
     * installed to be meant.
     */
    private static function isPsr(string $type): bool
    {
        return $type === ServerRequestInterface::class
            || \is_a($type, ServerRequestInterface::class, true)
            || \is_a(ServerRequestInterface::class, $type, true);
    }

    /** @return list<string> */
    private static function names(?\ReflectionType $type): array
    {
        return match (true) {
            $type instanceof \ReflectionNamedType => [$type->getName()],
            $type instanceof \ReflectionUnionType => \array_merge(...\array_map(self::names(...), $type->getTypes())),
            default => [],
        };
    }
}
