<?php

declare(strict_types=1);

namespace Pronghorn\Symfony;

use Doctrine\DBAL\Connection;
use Doctrine\DBAL\Platforms\SqlitePlatform;
use Pronghorn\HttpFoundation\Persistence;
use Symfony\Component\DependencyInjection\ContainerInterface;

/**
 * Connections to databases that a kept kernel holds open, by Doctrine. An entity manager that was
 * closed by an exception is none of this: Doctrine's own reset makes it anew.
 */
final class Connections
{
    /** Of the registry, which is public in Doctrine's bundle. */
    private const DOCTRINE = 'doctrine';
    /**
     * Seconds without a request after which a connection is asked whether it lives. Databases and
     * what is between close idle ones after a minute or more.
     */
    private const IDLE = 10;

    /** When the last request ended, by `hrtime()`; null: there was none. */
    private ?int $used = null;
    private bool $isDoubtful = false;

    /** Before a request: one that was closed meanwhile is opened by the first query. */
    public function revive(?ContainerInterface $container): void
    {
        if ($this->used === null) {
            \array_map($this->own(...), self::made($container));
        }
        $isIdle = $this->used !== null && \hrtime(true) - $this->used >= self::IDLE * 1_000_000_000;
        if (!$isIdle && !$this->isDoubtful) {
            return;
        }
        $this->isDoubtful = false;
        foreach (self::opened($container) as $connection) {
            try {
                $connection->executeQuery($connection->getDatabasePlatform()->getDummySelectSQL());
            } catch (\Throwable) {
                $connection->close();
            }
        }
    }

    /** A request has failed, maybe because a connection is lost: the next one has them asked. */
    public function doubt(): void
    {
        $this->isDoubtful = true;
    }

    /** After a request: a transaction that was left open is rolled back. */
    public function settle(?ContainerInterface $container): void
    {
        foreach (self::opened($container) as $connection) {
            try {
                // Counted: without auto-commit the last one begins the next transaction.
                for ($level = $connection->getTransactionNestingLevel(); $level > 0; $level--) {
                    $connection->rollBack();
                }
                self::settleNative($connection);
            } catch (\Throwable) {
                // The database has closed it, and the transaction with it.
                $connection->close();
            }
        }
        \array_map($this->own(...), self::made($container));
        $this->used = \hrtime(true);
    }

    /**
     * Has it open a session of its own from now on: a persistent one, which PHP gives out again
     * after it was closed, has all that was set.
     */
    private function own(Connection $connection): void
    {
        $given = $connection->getParams();
        $params = self::isInMemory($connection) ? $given : Persistence::without($given);
        if ($params === $given) {
            return;
        }
        (function () use ($params): void {
            $this->params = $params;
        })->bindTo($connection, Connection::class)();
        $connection->close();
    }

    /** A transaction that was begun past Doctrine, by SQL or by what is below it. */
    private static function settleNative(Connection $connection): void
    {
        // Else the next transaction has begun.
        if (!$connection->isAutoCommit()) {
            return;
        }
        $native = $connection->getNativeConnection();
        $isOpen = $native instanceof \PDO && $native->inTransaction();
        $isOpen = $isOpen ? $native->rollBack() : self::rollBackUnseen($connection, $native);
        if ($isOpen && !self::isInMemory($connection)) {
            // It may be that every statement begins one, by `SET autocommit = 0`.
            $connection->close();
        }
    }

    /** Of those drivers that don't tell whether there is one; whether there was, as far as they say. */
    private static function rollBackUnseen(Connection $connection, mixed $native): bool
    {
        if ($native instanceof \PDO && $native->getAttribute(\PDO::ATTR_DRIVER_NAME) !== 'sqlite') {
            return false;
        }
        try {
            $connection->executeStatement('ROLLBACK');
        } catch (\Throwable) {
            // There is none, which is an error of SQLite. A query tells of a lost connection.
            return false;
        }

        // With `SET autocommit = 0` what the next one writes would be rolled back as well.
        return $connection->getDatabasePlatform() instanceof SqlitePlatform
            || $native instanceof \mysqli && (int) $connection->fetchOne('SELECT @@autocommit') === 0;
    }

    private static function isInMemory(Connection $connection): bool
    {
        return $connection->getParams()['memory'] ?? false;
    }

    /** Closes them before workers are forked, which can't share one; one in memory is a copy in each. */
    public function close(?ContainerInterface $container): void
    {
        foreach (self::made($container) as $connection) {
            $this->own($connection);
            self::isInMemory($connection) || $connection->close();
        }
    }

    /** @return list<Connection> */
    private static function opened(?ContainerInterface $container): array
    {
        $isOpen = static fn (Connection $connection): bool => $connection->isConnected();

        return \array_values(\array_filter(self::made($container), $isOpen));
    }

    /** @return list<Connection> */
    private static function made(?ContainerInterface $container): array
    {
        if ($container === null || !$container->has(self::DOCTRINE)) {
            return [];
        }
        $made = [];
        // Made here if nobody else has: Symfony resets it, and so its entity managers, only then.
        $registry = $container->get(self::DOCTRINE);
        foreach ($registry->getConnectionNames() as $name => $service) {
            $connection = $container->initialized($service) ? $registry->getConnection($name) : null;
            if ($connection instanceof Connection) {
                $made[] = $connection;
            }
        }

        return $made;
    }
}
