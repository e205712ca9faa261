<?php

declare(strict_types=1);

namespace Pronghorn\Jobs\Internal;

use Pronghorn\Jobs\NewJob;
use Pronghorn\Jobs\Options;

/** A job as `jobs.Push` takes it. */
final class Message
{
    /** A float stays one. */
    public const JSON = \JSON_THROW_ON_ERROR | \JSON_UNESCAPED_SLASHES | \JSON_PRESERVE_ZERO_FRACTION;

    /**
     * @return array<string, mixed>
     * @throws \JsonException when the payload can't be written as JSON
     */
    public static function of(NewJob $job, string $pipeline): array
    {
        $options = $job->options;
        $headers = $options->headers + self::extras($options);
        $payload = $job->payload;
        if (!\is_string($payload)) {
            $payload = \json_encode($payload, self::JSON);
            $headers['content-type'] = 'application/json';
        }
        $fields = [];
        foreach ($headers as $name => $values) {
            $fields[$name] = ['value' => (array) $values];
        }

        return [
            'job' => $job->name,
            'id' => $options->id ?? self::id(),
            'payload' => \base64_encode($payload),
            'headers' => (object) $fields,
            'options' => [
                'pipeline' => $options->pipeline ?? $pipeline,
                'priority' => $options->priority ?? 0,
                'delay' => $options->delay,
                'auto_ack' => $options->autoAck,
            ],
        ];
    }

    /**
     * What RoadRunner's message has no field for travels as headers, which brokers keep as well.
     *
     * @return array<string, string>
     */
    private static function extras(Options $options): array
    {
        $extras = [
            'pool' => $options->pool,
            'pronghorn-deadline' => self::seconds($options->deadline),
            'pronghorn-expires' => self::seconds($options->expires),
            'pronghorn-unique' => $options->unique,
            'pronghorn-unique-for' => self::seconds($options->uniqueFor),
            'pronghorn-result' => $options->result ? 'keep' : null,
            'pronghorn-attempts' => $options->attempts === null ? null : (string) $options->attempts,
        ];

        return \array_filter($extras, static fn (?string $value): bool => $value !== null);
    }

    /** With a point, whatever the locale is, and without an exponent. */
    private static function seconds(?float $seconds): ?string
    {
        return $seconds === null ? null : \number_format($seconds, 3, '.', '');
    }

    /** A UUID, version 4. */
    private static function id(): string
    {
        $bytes = \random_bytes(16);
        $bytes[6] = \chr(\ord($bytes[6]) & 0x0F | 0x40);
        $bytes[8] = \chr(\ord($bytes[8]) & 0x3F | 0x80);

        return \vsprintf('%s%s-%s-%s-%s-%s%s%s', \str_split(\bin2hex($bytes), 4));
    }
}
