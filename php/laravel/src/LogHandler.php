<?php

declare(strict_types=1);

namespace Pronghorn\Laravel;

use Monolog\Handler\PsrHandler;

/** Hands on what processors have added to a record, as part of its context. */
final class LogHandler extends PsrHandler
{
    /** @param array<string, mixed>|\Monolog\LogRecord $record an array before Monolog 3 */
    public function handle($record): bool
    {
        $extra = $record['extra'];
        if ($extra !== []) {
            $context = $record['context'] + ['extra' => $extra];
            $record = \is_array($record) ? ['context' => $context] + $record : $record->with(context: $context);
        }

        return parent::handle($record);
    }
}
