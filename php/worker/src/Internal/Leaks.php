<?php

declare(strict_types=1);

namespace Pronghorn\Internal;

/**
 * Tells of places that calls change for those after them: static properties, static variables,
 * globals, and settings of PHP. The extension finds them. And tells of memory that calls leave.
 */
final class Leaks
{
    /** The server's wish: what to do, and one call of how many is examined: `report 1`. */
    public const ASKED = 'PRONGHORN_LEAKS';
    public const PATTERN = '/^(report|recycle) (\d{1,6})$/D';

    /** The wish once the environment has it no more. */
    private static ?string $wish = null;

    private ?string $route = null;
    private readonly Growth $growth;

    private function __construct(private readonly Transport $transport, private readonly bool $recycles)
    {
        $this->growth = new Growth();
    }

    /** For a worker that is about to forget what the server has told it. */
    public static function remember(): void
    {
        self::$wish = (string) \getenv(self::ASKED);
    }

    /**
     * Null: nobody wants it.
     *
     * @param bool $settings whether what calls set in PHP stays
     */
    public static function watch(Transport $transport, bool $settings): ?self
    {
        if (\preg_match(self::PATTERN, self::$wish ?? (string) \getenv(self::ASKED), $asked) !== 1) {
            return null;
        }
        \Pronghorn\Internal\leaks_watch((int) $asked[2], $settings);

        return new self($transport, $asked[1] === 'recycle');
    }

    /**
     * What a call has printed, set and answered is settled behind this: destructors of its circles
     * belong to it, and to nobody else.
     */
    public function collect(Exchange $exchange): void
    {
        foreach (\Pronghorn\Internal\leaks_collect() as [$destructor, $file, $line]) {
            $this->transport->remark(new Failure(
                "circle: $destructor",
                "$destructor runs in a later call, which may be another visitor's: a call of"
                    . " `{$exchange->describe()}` has left its object in a circle of objects, which PHP collects at"
                    . ' some time. What it prints goes into the reply then, and so do its headers and cookies. hint:'
                    . ' break the circle (a WeakReference, or null), or defer(gc_collect_cycles(...)) on the call',
                $file,
                $line,
            ));
        }
    }

    /** A call is over; its objects go now. */
    public function ended(?Exchange $exchange): void
    {
        $tcp = $exchange instanceof TcpExchange ? $exchange->connection : null;
        $this->route = match (true) {
            $exchange instanceof JobExchange => "job {$exchange->job->name}",
            $tcp !== null => "{$tcp->event->name} at $tcp->server",
            default => $exchange?->describe(),
        };
    }

    /** @return bool whether this process should serve no other call */
    public function look(): bool
    {
        if ($this->route === null) {
            return false;
        }
        [$route, $this->route] = [$this->route, null];
        $found = \Pronghorn\Internal\leaks_look($route);
        foreach ($found as [$place, $file, $line, $before, $now]) {
            $change = match (true) {
                $before === '' => 'it was another one each time',
                $before === $now => "$now, not the same or with something else inside",
                default => "$before at first, $now now",
            };
            $this->transport->remark(new Failure(
                "leak: $place",
                "$place keeps what a call leaves there, and the next call finds it: $change."
                    . " Three calls of `$route` have changed it. hint: keep it in an object that ends with the call,"
                    . ' or set it back with Call::defer()',
                $file,
                $line,
            ));
        }

        $bytes = $this->growth->ended($route);
        if ($bytes !== null) {
            $this->transport->remark(new Failure(
                "memory: $route",
                "Each call of `$route` leaves $bytes bytes of memory in its worker, also when PHP has collected what"
                    . ' nobody holds. hint: look for what keeps its objects, such as listeners, closures, lists in'
                    . ' objects and logs in memory; `max_jobs` of the pool bounds what is lost',
                '',
                0,
            ));
        }

        return $this->recycles && ($found !== [] || $bytes !== null);
    }
}
