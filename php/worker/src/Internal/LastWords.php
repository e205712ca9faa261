<?php

declare(strict_types=1);

namespace Pronghorn\Internal;

/**
 * Answers the call that `exit` or a fatal error ended: PHP runs shutdown functions even then. The
 * worker leaves after it, and says so, because nothing can bring the loop back.
 */
final class LastWords
{
    private const FATAL = \E_ERROR | \E_PARSE | \E_CORE_ERROR | \E_COMPILE_ERROR | \E_USER_ERROR | \E_RECOVERABLE_ERROR;

    /** Between what was thrown and its trace. */
    private const TRACE = "\nStack trace:\n";

    /** Freed at the end, so that there is memory for the answer when PHP ran out of it. */
    private static ?string $reserve = null;

    private function __construct(private readonly Output $output, private readonly int $pid)
    {
    }

    /** Made before a fork, it is memory of the zygote, and costs no worker anything. */
    public static function reserve(): void
    {
        self::$reserve ??= \str_repeat("\0", 256 * 1024);
    }

    public static function prepare(Output $output): void
    {
        self::reserve();
        \register_shutdown_function((new self($output, (int) \getmypid()))->say(...));
    }

    private function say(): void
    {
        $exchange = Exchange::$current;
        if ($exchange === null || \getmypid() !== $this->pid) {
            // Between two calls, or in a child that the application forked: not ours to answer.
            return;
        }
        Exchange::$current = null;
        self::$reserve = null;
        $error = \error_get_last();
        try {
            if ($error !== null && $error['type'] & self::FATAL) {
                $failure = self::fatal($error);
                if (!self::hasPage($exchange, $failure)) {
                    $this->fail($exchange, $failure);
                }
            } else {
                // Nothing of what was deferred will run.
                $exchange->deferred = [];
                self::finish($exchange, $this->output, flags: Native::LEAVING);
            }
        } catch (\Throwable) {
            // The server is gone as well.
        }
        $exchange instanceof HttpExchange ? $this->output->finish($exchange) : $this->output->stop();
    }

    /** Whether what a front controller has printed by now, or prints at its end, was sent. */
    private static function hasPage(Exchange $exchange, Failure $failure): bool
    {
        return \function_exists('Pronghorn\Internal\request_last')
            && \Pronghorn\Internal\request_last(static fn () => $exchange->transport->remark($failure));
    }

    /** @param array{type: int, message: string, file: string, line: int} $error */
    private static function fatal(array $error): Failure
    {
        // An exception that nobody caught, thrown after the handler: PHP's message holds the trace.
        // It comes last: the words before it may be a visitor's.
        $at = \str_starts_with($error['message'], 'Uncaught ') ? \strrpos($error['message'], self::TRACE) : false;
        $message = $at === false ? $error['message'] : \substr($error['message'], 0, $at);
        $trace = $at === false ? '' : \substr($error['message'], $at + \strlen(self::TRACE));

        return new Failure(\ErrorException::class, $message, $error['file'], $error['line'], $trace);
    }

    private function fail(Exchange $exchange, Failure $failure): void
    {
        // Of a page that failed.
        $exchange instanceof HttpExchange && $this->output->rest();
        if ($exchange->state === Exchange::DONE) {
            // Of what was deferred: the client has its reply, and the server is to know.
            $exchange->transport->remark($failure);
        } elseif ($exchange instanceof GrpcExchange && $exchange->state === Exchange::STREAMING) {
            $exchange->deferred = [];
            $exchange->breakOff($failure, Native::LEAVING);
        } else {
            $exchange->transport->error($exchange->id, $failure, Native::LEAVING);
        }
    }

    /**
     * `exit` ends the reply, it is no mistake: what was returned counts, else what was echoed.
     *
     * @param array{string, int} $place file and line of the `exit`; an empty file when nobody knows
     * @param int $flags of the reply's end
     */
    public static function finish(Exchange $exchange, Output $output, array $place = ['', 0], int $flags = 0): void
    {
        if ($exchange->deferred !== []) {
            $flags |= Native::BUSY;
        }
        $printed = $exchange instanceof HttpExchange && $exchange->state !== Exchange::DONE ? $output->rest() : '';
        if ($exchange->state === Exchange::STREAMING && $exchange instanceof GrpcExchange) {
            $exchange->breakOff(self::silent($exchange, $place), $flags);
        } elseif ($exchange->state === Exchange::STREAMING) {
            $exchange->transport->chunk($exchange->id, $printed, $flags);
        } elseif ($exchange->state === Exchange::FRESH && !$exchange->endByExit($printed, $flags)) {
            $exchange->transport->error($exchange->id, self::silent($exchange, $place), $flags);
        }
        $exchange->state = Exchange::DONE;
    }

    /**
     * Where it was, or the next best: which handler.
     *
     * @param array{string, int} $place
     */
    private static function silent(Exchange $exchange, array $place): Failure
    {
        [$file, $line] = $place;
        $message = $exchange->state === Exchange::STREAMING
            ? 'exit() ended the stream in the middle of it.'
            : 'exit() ended the call, and nothing had been returned or echoed.';
        if ($file === '' && $exchange->handler !== null) {
            [$file, $line] = [$exchange->handler->file, $exchange->handler->line];
            $message .= " Without the extension PHP does not tell where it was called; the handler is in $file:$line.";
        }

        return new Failure('exit', $message, $file, $line);
    }
}
