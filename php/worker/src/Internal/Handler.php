<?php

declare(strict_types=1);

namespace Pronghorn\Internal;

/** What an application has registered for a kind of call. */
abstract class Handler
{
    /** @param \Closure $function what the application gave */
    protected function __construct(
        public readonly \Closure $function,
        public readonly string $file,
        public readonly int $line,
    ) {
    }

    /** Calls the function, and sends what it returns. */
    abstract public function answer(Exchange $exchange): void;

    /** Sends what the function has returned. */
    abstract public function send(Exchange $exchange, mixed $result): void;

    /**
     * What the extension calls: it gets what the call has for a handler, and returns what is to be
     * sent.
     */
    abstract public function function(): \Closure;

    /** A function in the words of a message. */
    protected static function name(\ReflectionFunction $function): string
    {
        return 'The handler ' . ($function->isInternal()
            ? "{$function->getName()}()"
            : "in {$function->getFileName()}:{$function->getStartLine()}");
    }
}
