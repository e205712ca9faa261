<?php

declare(strict_types=1);

namespace Pronghorn\Internal;

use Pronghorn\Request;
use Pronghorn\Response;

/**
 * Calls as requests of PHP's own, by the extension: superglobals, `header()`, sessions, and what a
 * call has changed in PHP is changed back after it.
 */
final class Requests
{
    /** The server sets it where the pool's `globals` is on. */
    public const ASKED = 'PRONGHORN_GLOBALS';

    /** The server's wish once the environment has it no more. */
    private static ?bool $areWanted = null;

    /** Whether they can be, in a worker whose transport is the ring. */
    public static function areWanted(): bool
    {
        return self::$areWanted ?? \getenv(self::ASKED) === '1';
    }

    /** For a worker that is about to forget what the server has told it. */
    public static function remember(): void
    {
        self::$areWanted = self::areWanted();
    }

    /** They are not to be, whatever the pool says. */
    public static function turnOff(): void
    {
        \putenv(self::ASKED);
        self::$areWanted = self::$areWanted === null ? null : false;
    }

    /** Why no handler can be a front controller in this process, or null. */
    public static function lacking(): ?string
    {
        return match (true) {
            !\extension_loaded('pronghorn') => 'this PHP has no extension `pronghorn`',
            !self::areWanted() => 'the pool has `globals: false`, or the script asks for it by withoutGlobals()',
            \getenv(Ring::OFFER) === false && !Zygote::isOne() => 'the pool has `transport: relay`',
            default => null,
        };
    }

    /** What PHP has now is there again after each call. */
    public static function takeOver(bool $front, Output $output): void
    {
        $response = new Response();
        \Pronghorn\Internal\printed_watch($output, $response);
        if ($front) {
            $output->release();
        }
        \Pronghorn\Internal\requests_take_over($front, self::form(...), $output, $response);
    }

    /**
     * @param bool $asBody what PHP makes no `$_POST` of, as a body to read
     * @return array{array<mixed>, array<mixed>, list<string>}|resource `$_POST`, `$_FILES`, paths
     */
    private static function form(Request $request, bool $asBody = false): mixed
    {
        $parts = $request->parts();

        return $asBody
            ? $parts->body((string) $request->header('content-type'))
            : [$parts->post(), $parts->uploads(), $parts->paths()];
    }
}
