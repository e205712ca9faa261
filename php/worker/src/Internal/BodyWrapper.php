<?php

declare(strict_types=1);

namespace Pronghorn\Internal;

/** Lets PHP's functions for streams read a body that is asked for piece by piece. */
final class BodyWrapper
{
    private const SCHEME = 'pronghorn-body';

    /** @var ?resource set by PHP */
    public $context;
    private BodyReader $reader;

    /** @return resource */
    public static function open(BodyReader $reader)
    {
        if (!\in_array(self::SCHEME, \stream_get_wrappers(), true)) {
            \stream_wrapper_register(self::SCHEME, self::class);
        }
        $context = \stream_context_create([self::SCHEME => ['reader' => $reader]]);

        return \fopen(self::SCHEME . '://', 'rb', false, $context)
            ?: throw new BadStream("The request's body cannot be opened as a stream.");
    }

    // phpcs:disable PSR1.Methods.CamelCapsMethodName -- names that PHP calls

    public function stream_open(): bool
    {
        $reader = \stream_context_get_options($this->context)[self::SCHEME]['reader'] ?? null;
        if (!$reader instanceof BodyReader) {
            return false;
        }
        $this->reader = $reader;

        return true;
    }

    public function stream_read(int $count): string
    {
        return $this->reader->read($count);
    }

    public function stream_eof(): bool
    {
        return $this->reader->atEnd();
    }

    /** @return array<string, int> */
    public function stream_stat(): array
    {
        return [];
    }

    public function stream_set_option(): bool
    {
        return false;
    }
}
