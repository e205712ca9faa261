<?php

declare(strict_types=1);

namespace Pronghorn\Tests\Support;

use Pronghorn\Internal\Frame;

/** A worker script in a process of its own, started as the server starts it. */
final class Process
{
    /** Seconds that a worker may take for anything. Only a worker that hangs takes them. */
    private const PATIENCE = 20;

    /** @var resource */
    private $process;
    /** @var ?resource to the worker */
    private $input;
    /** @var resource from the worker */
    private $replies;
    /** Whether it has announced that it goes on in shared memory. */
    public bool $usesBox = false;
    /** What was taken from there and not yet read. */
    private string $taken = '';
    /** @var resource what it wrote to stdout and stderr */
    private $output;

    /**
     * @param list<string> $php arguments of php before the script
     * @param array<string, string> $environment
     * @param ?Box $box that it is offered
     */
    public function __construct(string $script, array $php = [], array $environment = [], private ?Box $box = null)
    {
        $memory = [];
        foreach ($box?->descriptors ?? [] as $descriptor) {
            $memory[] = fopen("php://fd/$descriptor", 'r+');
        }
        if ($box !== null) {
            $environment['PRONGHORN_RING'] = '5,6,7';
        }
        $this->output = tmpfile();
        $this->process = proc_open(
            [PHP_BINARY, '-d', 'display_errors=stderr', '-d', 'log_errors=0', ...$php, $script],
            [['file', '/dev/null', 'r'], $this->output, $this->output, ['pipe', 'r'], ['pipe', 'w'], ...$memory],
            $pipes,
            dirname($script),
            $environment + ['PRONGHORN_PIPES' => '3,4', 'PRONGHORN_VERSION' => '0.0.0', 'RR_MODE' => 'http'] + getenv(),
        );
        $this->input = $pipes[3];
        $this->replies = $pipes[4];
    }

    public function __destruct()
    {
        if (is_resource($this->process)) {
            proc_terminate($this->process, SIGKILL);
            proc_close($this->process);
        }
        $this->box?->close();
    }

    /** Does the handshake. */
    public static function started(
        string $script,
        array $php = [],
        array $environment = [],
        ?Box $box = null,
    ): self {
        $worker = new self($script, $php, $environment, $box);
        $worker->send(Codec::control('{"pid":1,"native":1}'));
        $hello = $worker->read();
        if ($hello?->kind !== 'control') {
            throw new \RuntimeException('the worker did not start: ' . $worker->output());
        }
        $worker->usesBox = json_decode($hello->body, true)['ring'] ?? false;
        if ($box !== null && !$worker->usesBox) {
            throw new \RuntimeException("the worker does not take its box: $hello->body");
        }

        return $worker;
    }

    /** @param array<string, mixed> $fields */
    public function request(array $fields = [], string $body = ''): void
    {
        $this->send(Codec::frame(Codec::request($fields), $body));
    }

    /** @param array<string, mixed> $fields */
    public function raw(string $payload, array $fields = []): void
    {
        $this->send(Codec::frame(Codec::raw($fields), $payload));
    }

    /** @param array<string, mixed> $fields */
    public function job(string $payload, array $fields = []): void
    {
        $this->send(Codec::frame(Codec::job($fields), $payload));
    }

    /** @param array<string, mixed> $fields */
    public function tcp(string $message, array $fields = []): void
    {
        $this->send(Codec::frame(Codec::tcp($fields), $message));
    }

    public function send(string $bytes): void
    {
        if (!$this->usesBox) {
            @fwrite($this->input, $bytes);

            return;
        }
        for ($deadline = microtime(true) + self::PATIENCE; $bytes !== ''; $bytes = substr($bytes, $sent)) {
            $sent = $this->box->put($bytes);
            if ($sent === 0) {
                $this->sleepUnless(fn () => $this->box->room() > 0, $deadline);
            }
        }
    }

    /** The next message, or null at the end. */
    public function read(): ?Message
    {
        $bytes = $this->bytes(12);
        if ($bytes === '') {
            return null;
        }
        $bytes .= $this->bytes((ord($bytes[0]) & 15) * 4 - 12);

        return Codec::message(Frame::decode($bytes . $this->bytes(Frame::length($bytes) - strlen($bytes))));
    }

    /**
     * All messages of one reply.
     *
     * @return list<Message>
     */
    public function reply(): array
    {
        $messages = [];
        do {
            $message = $this->read() ?? throw new \RuntimeException('the worker ended: ' . $this->output());
            $messages[] = $message;
        } while ($message->more);

        return $messages;
    }

    /** Nothing more will be sent to it. */
    public function hangUp(): void
    {
        fclose($this->input);
        $this->input = null;
    }

    /** Waits for the end of the process and gives its exit code. */
    public function wait(): int
    {
        while ($this->read() !== null) {
        }

        return proc_close($this->process);
    }

    /** Whether it says something, or ends, within this time. */
    public function stirs(float $seconds): bool
    {
        $read = [$this->replies];
        $none = null;

        return stream_select($read, $none, $none, (int) $seconds, (int) (fmod($seconds, 1) * 1e6)) === 1;
    }

    public function pid(): int
    {
        return proc_get_status($this->process)['pid'];
    }

    public function output(): string
    {
        return (string) file_get_contents(stream_get_meta_data($this->output)['uri']);
    }

    private function bytes(int $count): string
    {
        return $this->usesBox ? $this->bytesOfBox($count) : $this->bytesOfPipe($count);
    }

    private function bytesOfBox(int $count): string
    {
        $deadline = microtime(true) + self::PATIENCE;
        while (strlen($this->taken) < $count) {
            $ended = $this->hasEnded();
            $more = $this->box->take();
            $this->taken .= $more;
            if ($more === '' && $ended) {
                return '';
            }
            if ($more === '') {
                $this->sleepUnless($this->box->hasMore(...), $deadline);
            }
        }
        $bytes = substr($this->taken, 0, $count);
        $this->taken = substr($this->taken, $count);

        return $bytes;
    }

    /** Its end of the pipe is closed, which only its end does. */
    private function hasEnded(): bool
    {
        return $this->stirs(0) && fread($this->replies, 1) === '';
    }

    private function bytesOfPipe(int $count): string
    {
        $bytes = '';
        while (strlen($bytes) < $count) {
            if (!$this->stirs(self::PATIENCE)) {
                throw new \RuntimeException('the worker says nothing. Its output: ' . $this->output());
            }
            $piece = (string) fread($this->replies, $count - strlen($bytes));
            if ($piece === '') {
                return '';
            }
            $bytes .= $piece;
        }

        return $bytes;
    }

    /** @param \Closure(): bool $happened */
    private function sleepUnless(\Closure $happened, float $deadline): void
    {
        if (microtime(true) > $deadline) {
            throw new \RuntimeException('the worker does nothing. Its output: ' . $this->output());
        }
        $this->box->sleepUnless($happened, $this->replies);
    }
}
