<?php

declare(strict_types=1);

namespace Pronghorn\Internal;

/**
 * What a call is. Handlers are registered for a kind, and a worker announces the kinds that it has
 * handlers for.
 *
 * A new kind is a case here, a message in {@see Frames}, an {@see Exchange} and a {@see Handler};
 * where the extension is to serve it without a line of PHP, also a row in its `kinds`.
 */
enum Kind: string
{
    /** An HTTP request. */
    case Http = 'http';
    /**
     * Bytes, answered by bytes: what they mean is a matter between the service and the application.
     */
    case Raw = 'raw';
    /** A job out of a queue. */
    case Job = 'job';
    /** An event of a TCP connection. */
    case Tcp = 'tcp';
    /** A call of a gRPC method. */
    case Grpc = 'grpc';

    /**
     * The kind of call that a pool needs a handler for, by the service that it belongs to: RR_MODE.
     */
    public static function ofMode(string $mode): self
    {
        return match ($mode) {
            'http' => self::Http,
            'jobs' => self::Job,
            'tcp' => self::Tcp,
            'grpc' => self::Grpc,
            default => self::Raw,
        };
    }

    /** Says how a handler for it is registered. */
    public function cure(): string
    {
        return match ($this) {
            self::Http => 'Give one to onRequest().',
            self::Job => 'Give one to onJob().',
            self::Grpc => 'Give one to onGrpc().',
            self::Tcp => 'Give one to onTcp().',
            self::Raw => 'Give one to onRaw() if the calls of that service are bytes.',
        };
    }
}
