<?php

declare(strict_types=1);

namespace Pronghorn\Symfony\Tests;

use Doctrine\DBAL\Connection;
use Doctrine\DBAL\DriverManager;
use Doctrine\DBAL\Exception;
use Doctrine\DBAL\Platforms\SqlitePlatform;
use PHPUnit\Framework\TestCase;
use Pronghorn\Symfony\Connections;
use Symfony\Component\DependencyInjection\Container;

final class ConnectionsTest extends TestCase
{
    /** With a registry as that of Doctrine's bundle. */
    private static function container(Connection $connection): Container
    {
        $container = new Container();
        $container->set('doctrine.dbal.default_connection', $connection);
        $container->set('doctrine', new class ($container) {
            public function __construct(private readonly Container $container)
            {
            }

            /** @return array<string, string> */
            public function getConnectionNames(): array
            {
                return ['default' => 'doctrine.dbal.default_connection', 'other' => 'doctrine.dbal.other_connection'];
            }

            public function getConnection(string $name): object
            {
                return $this->container->get("doctrine.dbal.{$name}_connection");
            }
        });

        return $container;
    }

    public function testATransactionThatWasLeftOpenIsRolledBack(): void
    {
        $database = DriverManager::getConnection(['driver' => 'pdo_sqlite', 'memory' => true]);
        $database->executeStatement('CREATE TABLE goods (name TEXT)');
        $container = self::container($database);
        $connections = new Connections();

        $database->beginTransaction();
        $database->insert('goods', ['name' => 'one']);
        $database->beginTransaction();
        $connections->settle($container);
        self::assertFalse($database->isTransactionActive());
        self::assertSame(0, (int) $database->fetchOne('SELECT COUNT(*) FROM goods'));

        $database->insert('goods', ['name' => 'two']);
        $connections->settle($container);
        self::assertSame(1, (int) $database->fetchOne('SELECT COUNT(*) FROM goods'));
    }

    public function testAConnectionThatWasLostWhileNobodyAskedIsClosed(): void
    {
        $lost = $this->createMock(Connection::class);
        $lost->method('isConnected')->willReturn(true);
        $lost->method('getDatabasePlatform')->willReturn(new SqlitePlatform());
        $gone = new Exception('server has gone away');
        $lost->expects(self::once())->method('executeQuery')->willThrowException($gone);
        $lost->expects(self::once())->method('close');
        $connections = new Connections();
        $connections->settle(null);
        $connections->revive(self::container($lost));
        // As if a request had ended 11 seconds ago.
        (function (): void {
            $this->used -= 11_000_000_000;
        })->call($connections);
        $connections->revive(self::container($lost));
    }

    public function testWithoutDoctrineThereIsNothingToDo(): void
    {
        $connections = new Connections();
        $connections->settle(new Container());
        $connections->settle(null);
        $connections->revive(null);
        $this->addToAssertionCount(1);
    }
}
