<?php

declare(strict_types=1);

namespace Pronghorn\Laravel;

use Illuminate\Database\Connection;
use Illuminate\Database\Connectors\ConnectionFactory;

/** Shows each connection that it makes to a function, before any statement has run on it. */
final class WatchingFactory extends ConnectionFactory
{
    /** @param \Closure(Connection): void $watch */
    public function __construct(private readonly ConnectionFactory $inner, private readonly \Closure $watch)
    {
    }

    /**
     * @param array<string, mixed> $config
     * @param string|null $name
     */
    public function make(array $config, $name = null): Connection
    {
        $connection = $this->inner->make($config, $name);
        ($this->watch)($connection);

        return $connection;
    }
}
