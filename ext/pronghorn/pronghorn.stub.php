<?php

/**
 * What the extension gives to the package pronghorn/worker; applications call none of its
 * functions.
 *
 * @generate-class-entries
 * @undocumentable
 */

namespace Pronghorn {
    /**
     * Thrown into a call whose time is up, at the next line that PHP runs. Whoever catches it has a
     * second to end.
     */
    class DeadlineExceeded extends \Error
    {
    }
}

namespace Pronghorn\Internal {
    /**
     * Of these functions: a package of another one leaves them alone.
     *
     * @var int
     * @cvalue PRONGHORN_API
     */
    const EXTENSION_API = UNKNOWN;
    /**
     * By which the server ends a call, in a worker that has taken its box.
     *
     * @var int
     * @cvalue DEADLINE_SIGNAL
     */
    const DEADLINE_SIGNAL = UNKNOWN;

    /**
     * Takes the memory that the server handed over. What is in the way, or null.
     *
     * @param int $memory descriptor of the box
     * @param int $page descriptor of its thread's page
     * @param int $bell descriptor of its thread's bell
     * @param int $server descriptor of the pipe whose other end the server holds
     * @param int $output descriptor of the pipe to the server; like the others it is hidden from
     *     programs that this one starts
     * @param int $look_after milliseconds after which a sleeper looks whether the server still
     *     lives
     * @param object $http an exchange with an empty request; those of HTTP requests are clones of
     *     it
     * @param object $raw an exchange with an empty payload; those of raw calls are clones of it
     * @param object $grpc an exchange with a call; those of gRPC calls are clones of it, with clones
     *     of its call
     */
    function ring_attach(
        int $memory, int $page, int $bell, int $server, int $output, int $look_after, object $http, object $raw,
        object $grpc
    ): ?string
    {
    }

    /**
     * In a process that the server has started as a zygote: forks workers from it, as it is now, as
     * often as the server wants one. Returns in each worker, which finds its descriptors in the
     * environment as one that was started does. The zygote ends here.
     *
     * @param int $control descriptor of the socket by which the server orders them
     * @param bool $is_warm whether it has answered what new workers are to be asked
     */
    function zygote_serve(int $control, bool $is_warm): void
    {
    }

    /**
     * Waits for what the server sends.
     *
     * @return object|string|null an exchange; or the bytes of another frame, or of what is no
     *     frame; null when the server is gone
     */
    function ring_next(): object|string|null
    {
    }

    /**
     * Calls the function for its kind with the request or payload of one call after another, sends
     * what it returns, and does what it has deferred, as long as that takes no more: a string, or a
     * response whose body is one, and nothing echoed.
     *
     * @param callable|null $http for HTTP requests
     * @param callable|null $raw for raw calls
     * @param callable|null $grpc for gRPC calls, which it answers before it returns
     * @param callable $failed gets the exchange and what was thrown by something that its call has
     *     deferred
     * @param object $output where what was echoed is kept
     * @param object $response of the class that responses have
     * @return object|array|string|null the exchange of a call that is not over, how its handler
     *     ended, and with what; the exchange of one that has no function; or as ring_next
     */
    function ring_serve(
        ?callable $http, ?callable $raw, ?callable $grpc, callable $failed, object $output, object $response
    ): object|array|string|null
    {
    }

    /** The next frame if one is there and it is no call, without waiting. */
    function ring_peek(): ?string
    {
    }

    /** Sends a reply; false when the server is gone. */
    function ring_reply(int $call, int $status, array $headers, string $body, int $flags, bool $more): bool
    {
    }

    /** Sends any other message; false when the server is gone. */
    function ring_message(int $kind, int $call, int $flags, int $small, string $context, string $body, bool $more): bool
    {
    }

    /**
     * Calls a method of the server, which has to hear of it before the call under way has ended.
     *
     * @return bool|null false: no call is under way, so nothing was sent; null: the server is gone
     */
    function ring_ask(int $number, string $method, string $argument): ?bool
    {
    }

    /**
     * Waits for the answer to that. Calls that lie before it stay where they are: the server takes
     * them back.
     *
     * @return array|string|null whether it is a result, and the result or why there is none; or the
     *     bytes of another frame, or of what is no frame; null when the server is gone
     */
    function ring_answer(int $number): array|string|null
    {
    }

    /** Sends these bytes; false when the server is gone. */
    function ring_write(string $bytes): bool
    {
    }

    /**
     * The headers of a request by name; null when their number is not $count.
     *
     * @param string|null $fields names and values with a NUL between each two
     */
    function native_headers(?string $fields, string $host, int $count): ?array
    {
    }

    /**
     * Calls the function. When `exit` ends it: where that was; else null.
     *
     * @return null|array{string, int} file and line
     */
    function until_exit(callable $function, mixed ...$arguments): ?array
    {
    }

    /**
     * Where functions were called since the last time that have no effect in a worker, or start a
     * session.
     *
     * @return list<array{string, string, int}> function, file and line
     */
    function places_seen(): array
    {
    }

    /**
     * From now on what is printed past all output buffers while a request is answered belongs to
     * its reply.
     *
     * @param object $output as for ring_serve
     * @param object $response as for ring_serve
     */
    function printed_watch(object $output, object $response): void
    {
    }

    /** It goes where PHP's command line writes it. */
    function printed_look_away(): void
    {
    }

    /**
     * What was printed past all output buffers, and the client has not. Once it is too much to be
     * kept, or it was flushed, the exchange is one of a reply that has begun.
     */
    function printed_take(): string
    {
    }

    /**
     * Closes the output buffers above this level, also those that PHP lets nobody remove: what is
     * in each flows into the one below. All are closed when this throws what a callback has thrown.
     */
    function printed_close(int $above): void
    {
    }

    /** The call is over: how many bytes were printed behind its reply, and dropped. */
    function printed_settle(): int
    {
    }

    /**
     * Makes calls of this process requests of PHP's own, and what is there now is there again after
     * each.
     *
     * @param bool $front PHP's output is the body of replies
     * @param callable $form gets a request whose form the server has taken apart; returns $_POST,
     *     $_FILES and the paths of the files
     * @param object $output as for ring_serve
     * @param object $response as for ring_serve
     */
    function requests_take_over(bool $front, callable $form, object $output, object $response): void
    {
    }

    /** For calls that are no requests: keeps what PHP has now, for reset_again(). */
    function reset_keep(): void
    {
    }

    /**
     * Runs the functions for the end of such a call, and changes back what was changed since
     * reset_keep().
     *
     * @return bool whether something was, so that destructors may have changed more
     */
    function reset_again(): bool
    {
    }

    /** What is kept for that is not any more. */
    function reset_let_go(): void
    {
    }

    /**
     * From now on one call of so many is examined for what it leaves to the next.
     *
     * @param bool $settings whether settings of PHP are looked at, too
     */
    function leaks_watch(int $every, bool $settings): void
    {
    }

    /**
     * A call of this route is over, and nothing of it is left.
     *
     * @return list<array{string, string, int, string, string}> what was found and not told before:
     *     the place, the file and line of its code, what was there at first, and what is there now
     */
    function leaks_look(string $route): array
    {
    }

    /**
     * A call is over, and its objects are not gone yet. Where each call is examined, PHP collects
     * circles of objects now.
     *
     * @return list<array{string, string, int}> destructors that ran by that, once for each class:
     *     the class, the file and line of its code
     */
    function leaks_collect(): array
    {
    }

    /** Begins a request that ring_serve does not begin. */
    function request_begin(object $exchange): void
    {
    }

    /**
     * Begins a request, and calls what answers it by PHP's output.
     *
     * @return array{int, mixed} how that ended, and with what
     */
    function request_serve(object $exchange, callable $handler): array
    {
    }

    /** The request is over: what it has changed in PHP is changed back. */
    function request_end(): void
    {
    }

    /**
     * After a fatal error: runs the functions that the call has registered for its end. Whether its
     * output was sent as its reply; before that $tell is called.
     */
    function request_last(callable $tell): bool
    {
    }

    /**
     * What {@see Properties} is without this extension.
     *
     * @not-serializable
     * @strict-properties
     */
    final class NativeProperties
    {
        /** @param list<object> $objects */
        public function __construct(array $objects)
        {
        }

        /** Whether something had changed. */
        public function restore(): bool
        {
        }
    }

    /**
     * What {@see StaticProperties} is without this extension.
     *
     * @not-serializable
     * @strict-properties
     */
    final class NativeStatics
    {
        /**
         * @param list<string> $of
         * @param list<string> $without
         */
        public function __construct(array $of, array $without)
        {
        }

        public function objects(): array
        {
        }

        /** Whether something had changed. */
        public function restore(): bool
        {
        }
    }
}

namespace Pronghorn\Cache {
    /** What a storage can do, wherever it is. */
    interface Store
    {
        public function get(string $key, mixed $default = null): mixed;

        public function many(array $keys): array;

        public function set(string $key, mixed $value, ?float $ttl = null): bool;

        public function add(string $key, mixed $value, ?float $ttl = null): bool;

        public function delete(string $key): bool;

        public function increment(string $key, int $by = 1, ?float $ttl = null): int;

        public function compareAndSwap(string $key, mixed $old, mixed $new, ?float $ttl = null): bool;

        public function clear(string $prefix = ""): int;
    }

    /**
     * A storage of the server in memory that this process has mapped.
     *
     * @not-serializable
     * @strict-properties
     */
    final class SharedMemory implements Store
    {
        private function __construct()
        {
        }

        /** Null: this process has no such storage. */
        public static function open(string $storage): ?SharedMemory
        {
        }

        public function get(string $key, mixed $default = null): mixed
        {
        }

        public function many(array $keys): array
        {
        }

        public function set(string $key, mixed $value, ?float $ttl = null): bool
        {
        }

        public function add(string $key, mixed $value, ?float $ttl = null): bool
        {
        }

        public function delete(string $key): bool
        {
        }

        public function increment(string $key, int $by = 1, ?float $ttl = null): int
        {
        }

        public function compareAndSwap(string $key, mixed $old, mixed $new, ?float $ttl = null): bool
        {
        }

        public function clear(string $prefix = ""): int
        {
        }

        /** Bytes that an entry may have, with its key. */
        public function longest(): int
        {
        }
    }
}
