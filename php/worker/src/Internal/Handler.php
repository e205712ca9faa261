<?php

declare(strict_types=1);

namespace Pronghorn\Internal;

use Pronghorn\Request;
use Psr\Http\Message\ServerRequestInterface;
use Psr\Http\Server\RequestHandlerInterface;

/** A request handler and how it wants its call, which the type of its first parameter says. */
final class Handler
{
    private const SHAPES = <<<'END'
        Accepted are
          fn (Psr\Http\Message\ServerRequestInterface $request): Psr\Http\Message\ResponseInterface
          fn (Pronghorn\Request $request): string|iterable|array|Pronghorn\Response
          an object that is a Psr\Http\Server\RequestHandlerInterface
        END;

    private function __construct(
        public readonly \Closure $function,
        public readonly bool $wantsPsr,
        /** @var class-string the type of the first parameter */
        public readonly string $type,
        public readonly string $file,
        public readonly int $line,
    ) {
    }

    /** @throws BadWorker when nobody could call it */
    public static function of(callable|RequestHandlerInterface $handler): self
    {
        $callable = $handler instanceof RequestHandlerInterface ? [$handler, 'handle'] : $handler;
        $function = \Closure::fromCallable($callable);
        $reflection = new \ReflectionFunction($function);
        $file = (string) $reflection->getFileName();
        $line = (int) $reflection->getStartLine();
        $where = 'The handler ' . ($reflection->isInternal() ? "{$reflection->getName()}()" : "in $file:$line");
        $parameters = $reflection->getParameters();
        if ($parameters === []) {
            throw new BadWorker(
                "$where takes no parameter. There is no form with superglobals, echo and header() for workers: code"
                    . " that is written that way runs in a pool with `mode: classic`, or by"
                    . " `pronghorn serve --root public`.\n" . self::SHAPES
            );
        }
        if ($reflection->getNumberOfRequiredParameters() > 1) {
            throw new BadWorker("$where takes more than one parameter.\n" . self::SHAPES);
        }
        foreach (self::names($parameters[0]->getType()) as $type) {
            if ($type === Request::class) {
                return new self($function, false, $type, $file, $line);
            }
            if (self::isPsr($type)) {
                return new self($function, true, $type, $file, $line);
            }
        }
        $type = $parameters[0]->getType();
        $taken = $type === null ? 'a parameter without a type' : "`$type`";
        throw new BadWorker("$where takes $taken, not a request.\n" . self::SHAPES);
    }

    /** The interface, one that it extends, or a class of requests. The interface need not be installed to be meant. */
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
