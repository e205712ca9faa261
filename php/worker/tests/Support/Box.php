<?php

declare(strict_types=1);

namespace Pronghorn\Tests\Support;

use PHPUnit\Framework\TestCase;

/**
 * The server's half of the memory that it shares with a worker, through FFI;
 * `docs/reference/ring.md` says what lies where. Takes the numbers from the header that the
 * extension is compiled with.
 */
final class Box
{
    private const HEADER = __DIR__ . '/../../../../ext/pronghorn/ring_layout.h';

    private const C = <<<'END'
        int memfd_create(const char *name, unsigned flags);
        int ftruncate(int fd, long length);
        int eventfd(unsigned initial, int flags);
        int close(int fd);
        int dup2(int from, int to);
        int pipe(int *ends);
        void *mmap(void *at, size_t length, int protection, int flags, int fd, long offset);
        long syscall(long number, ...);
        END;

    private const PROT_READ_WRITE = 3;
    private const MAP_SHARED = 1;
    private const FUTEX_WAKE = 1;

    private static ?\FFI $c = null;
    /** @var array<string, int> */
    private static array $layout = [];

    /** @var array{int, int, int} descriptors of the box, the page and the bell */
    public readonly array $descriptors;
    /** Descriptor of the pipe whose hang-up is the end of the server. */
    public readonly int $pipe;
    private ?int $end = null;
    private \FFI\CData $words;
    private \FFI\CData $counts;
    private \FFI\CData $bytes;
    private \FFI\CData $page;
    /** @var resource */
    private $bell;
    private int $put = 0;
    private int $taken = 0;

    /** Skips a test where there is nobody to share memory with. */
    public static function expectPossible(): void
    {
        if (!extension_loaded('pronghorn') || !extension_loaded('FFI')) {
            TestCase::markTestSkipped('needs the extensions pronghorn and FFI');
        }
    }

    /** @param array<string, int> $changed of the head, to make one that is wrong */
    public function __construct(array $changed = [])
    {
        self::$c ??= \FFI::cdef(self::C, 'libc.so.6');
        if (self::$layout === []) {
            preg_match_all('/#define RING_(\w+) (\d+)u/', (string) file_get_contents(self::HEADER), $found);
            self::$layout = array_map('intval', array_combine($found[1], $found[2]));
        }
        $memory = self::memory(self::$layout['SIZE'], $map);
        $this->bytes = self::$c->cast('uint8_t *', $map);
        $this->words = self::$c->cast('uint32_t *', $map);
        $this->counts = self::$c->cast('uint64_t *', $map);
        $head = $changed + array_intersect_key(self::$layout, ['MAGIC' => 0, 'VERSION' => 0, 'DOWN' => 0, 'UP' => 0]);
        foreach (['MAGIC', 'VERSION', 'DOWN', 'UP'] as $i => $name) {
            $this->words[self::$layout['AT_HEAD'] / 4 + $i] = $head[$name];
        }
        $page = self::memory(self::$layout['PAGE'], $map);
        $this->page = self::$c->cast('uint32_t *', $map);
        $this->descriptors = [$memory, $page, self::$c->eventfd(0, 0)];
        $this->bell = fopen("php://fd/{$this->descriptors[2]}", 'r');
        stream_set_blocking($this->bell, false);
        $this->pipe = self::$c->eventfd(0, 0);
        $this->reset();
    }

    /** How much the worker has not taken yet, at most. */
    public function room(): int
    {
        return self::$layout['DOWN'] - ($this->put - $this->count('AT_DOWN_TAKEN'));
    }

    /** Whether there is something to take. */
    public function hasMore(): bool
    {
        return $this->count('AT_UP_PUT') !== $this->taken;
    }

    /** @return array{int, int} the call that the worker is at, and what its thread had taken before, in nanoseconds */
    public function timed(): array
    {
        $at = self::$layout['AT_TIMED'] / 8;

        return [$this->counts[$at], $this->counts[$at + 1]];
    }

    /** Puts as much as there is room for, and wakes the worker. Every call in it is offered. */
    public function put(string $bytes): int
    {
        $this->set('AT_OFFERED', 0xFFFFFFFF);
        $now = min(strlen($bytes), $this->room());
        $start = self::$layout['PAGE'];
        for ($done = 0; $done < $now; $done += $piece) {
            $at = ($this->put + $done) % self::$layout['DOWN'];
            $piece = min($now - $done, self::$layout['DOWN'] - $at);
            \FFI::memcpy($this->bytes + ($start + $at), substr($bytes, $done, $piece), $piece);
        }
        $this->put += $now;
        $this->setCount('AT_DOWN_PUT', $this->put);
        $this->wake();

        return $now;
    }

    /** Offers these calls alone. */
    public function offer(int ...$calls): void
    {
        $this->set('AT_OFFERED', array_sum(array_map(self::bit(...), $calls)));
    }

    /** Takes a call back that was put; false, the worker has begun it. */
    public function takeBack(int $call): bool
    {
        $offered = $this->word('AT_OFFERED');
        $this->set('AT_OFFERED', $offered & ~self::bit($call));

        return ($offered & self::bit($call)) !== 0;
    }

    /** A call's place among those that are offered. */
    private static function bit(int $call): int
    {
        return 1 << $call % 32;
    }

    /**
     * With how many calls that it has not begun the worker need not ring for a reply; 0: it rings
     * for each.
     */
    public function areEnough(int $calls): void
    {
        $this->set('AT_ENOUGH_CALLS', $calls);
    }

    /** The worker's calls are quick, and the server's thread is on this processor. */
    public function quicken(int $processor): void
    {
        $this->page[self::$layout['AT_PROCESSOR'] / 4] = $processor;
        $this->set('AT_QUICK', 1);
    }

    /** What the worker has put. */
    public function take(): string
    {
        $length = $this->count('AT_UP_PUT') - $this->taken;
        if ($length === 0) {
            return '';
        }
        $start = self::$layout['PAGE'] + self::$layout['DOWN'];
        $taken = '';
        while (strlen($taken) < $length) {
            $at = ($this->taken + strlen($taken)) % self::$layout['UP'];
            $piece = min($length - strlen($taken), self::$layout['UP'] - $at);
            $taken .= \FFI::string($this->bytes + ($start + $at), $piece);
        }
        $this->taken += $length;
        $this->setCount('AT_UP_TAKEN', $this->taken);
        $this->wake();

        return $taken;
    }

    /**
     * Sleeps as the server's thread does, until the worker rings, something is to be read there, or
     * a second is over.
     *
     * @param resource $other
     * @param \Closure(): bool $happened what is waited for; asked once more before the sleep, or it
     *     might be missed
     */
    public function sleepUnless(\Closure $happened, $other): void
    {
        $parked = self::$layout['AT_PARKED'] / 4;
        $this->set('AT_ROOM_WANTED', 1);
        $this->page[$parked] = $this->page[$parked] + 1;
        if (!$happened()) {
            $read = [$this->bell, $other];
            $none = null;
            stream_select($read, $none, $none, 1);
        }
        $this->page[$parked] = $this->page[$parked] + 1;
        $this->set('AT_ROOM_WANTED', 0);
        fread($this->bell, 8);
    }

    /** The thread sleeps from now on, as far as the worker can tell: another sleep than before. */
    public function park(): void
    {
        $parked = self::$layout['AT_PARKED'] / 4;
        $this->page[$parked] = $this->page[$parked] + 1 | 1;
    }

    /** Whether the worker has rung since this was asked last. */
    public function wasRung(): bool
    {
        return fread($this->bell, 8) !== '';
    }

    /** Makes the counts such that can't be, which a worker takes for the end of its server. */
    public function spoil(): void
    {
        $this->setCount('AT_UP_TAKEN', $this->taken + 2 * self::$layout['UP']);
    }

    /** The pipe that a worker looks at is hung up. */
    public function hangUp(): void
    {
        if ($this->end !== null) {
            self::$c->close($this->end);
            $this->end = null;
        }
    }

    /** Forgets what was not taken, makes the counts good again and the pipe a new one. */
    public function reset(): void
    {
        $this->put = $this->count('AT_DOWN_TAKEN');
        $this->setCount('AT_DOWN_PUT', $this->put);
        $this->setCount('AT_UP_TAKEN', $this->taken);
        $this->take();
        $this->hangUp();
        $ends = self::$c->new('int[2]');
        self::$c->pipe($ends);
        [$read, $this->end] = [$ends[0], $ends[1]];
        self::$c->dup2($read, $this->pipe);
        self::$c->close($read);
    }

    /** Ours of the descriptors; the worker has its own. */
    public function close(): void
    {
        foreach ($this->descriptors as $descriptor) {
            self::$c->close($descriptor);
        }
    }

    private function wake(): void
    {
        if ($this->word('AT_SLEEP') !== 0) {
            $this->set('AT_SLEEP', 0);
            $futex = \PHP_OS_FAMILY === 'Linux' && php_uname('m') === 'aarch64' ? 98 : 202;
            $at = $this->words + self::$layout['AT_SLEEP'] / 4;
            self::$c->syscall($futex, $at, self::FUTEX_WAKE, 1);
        }
    }

    private function word(string $name): int
    {
        return $this->words[self::$layout[$name] / 4];
    }

    private function set(string $name, int $value): void
    {
        $this->words[self::$layout[$name] / 4] = $value;
    }

    private function count(string $name): int
    {
        return $this->counts[self::$layout[$name] / 8];
    }

    private function setCount(string $name, int $value): void
    {
        $this->counts[self::$layout[$name] / 8] = $value;
    }

    private static function memory(int $size, ?\FFI\CData &$map): int
    {
        $memory = self::$c->memfd_create('box', 0);
        self::$c->ftruncate($memory, $size);
        $map = self::$c->mmap(null, $size, self::PROT_READ_WRITE, self::MAP_SHARED, $memory, 0);

        return $memory;
    }
}
