<?php

declare(strict_types=1);

namespace Pronghorn\Laravel\Tests;

use Illuminate\Database\Eloquent\Model;

/** A model with a listener of its own. */
final class Row extends Model
{
    protected static function booted(): void
    {
        self::saving(static fn (): bool => true);
        self::addGlobalScope('own', static fn () => null);
    }
}
