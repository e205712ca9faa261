<?php

declare(strict_types=1);

namespace Pronghorn\Symfony\Tests;

use Doctrine\DBAL\Configuration;
use Doctrine\DBAL\Connection;
use Doctrine\DBAL\DriverManager;
use Doctrine\DBAL\Exception;
use Doctrine\DBAL\Platforms\MySQLPlatform;
use Doctrine\DBAL\Platforms\SqlitePlatform;
use PHPUnit\Framework\MockObject\MockObject;
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

    /**
     * @dataProvider pastDoctrine
     * @param \Closure(Connection): mixed $begin
     */
    public function testATransactionThatWasBegunPastDoctrineIsRolledBack(string $driver, \Closure $begin): void
    {
        if (!\extension_loaded($driver)) {
            self::markTestSkipped("PHP has no $driver");
        }
        $file = \tempnam(\sys_get_temp_dir(), 'connections-');
        try {
            $database = DriverManager::getConnection(['driver' => $driver, 'path' => $file]);
            $database->executeStatement('CREATE TABLE goods (name TEXT)');
            $begin($database);
            $database->insert('goods', ['name' => 'of a visitor']);
            $connections = new Connections();
            $connections->settle(self::container($database));
            $database->insert('goods', ['name' => 'of the next one']);
            $connections->settle(self::container($database));
            self::assertSame(['of the next one'], $database->fetchFirstColumn('SELECT name FROM goods'));
        } finally {
            \unlink($file);
        }
    }

    /** @return iterable<string, array{string, \Closure(Connection): mixed}> */
    public static function pastDoctrine(): iterable
    {
        yield 'PDO' => [
            'pdo_sqlite',
            static fn (Connection $it): bool => $it->getNativeConnection()->beginTransaction(),
        ];
        yield 'SQL' => ['pdo_sqlite', static fn (Connection $it): int|string => $it->executeStatement('BEGIN')];
        yield 'SQL of SQLite3' => ['sqlite3', static fn (Connection $it): int|string => $it->executeStatement('BEGIN')];
    }

    /**
     * PHP gives a persistent connection out again after it was closed.
     *
     * @dataProvider persistence
     * @param \Closure(Connections, Container): mixed $see
     */
    public function testNoConnectionIsPersistent(bool $isOpen, \Closure $see): void
    {
        $file = \tempnam(\sys_get_temp_dir(), 'connections-');
        try {
            $database = DriverManager::getConnection([
                'driver' => 'pdo_sqlite',
                'path' => $file,
                'driverOptions' => [\PDO::ATTR_PERSISTENT => true],
            ]);
            $isOpen && $database->executeStatement('PRAGMA foreign_keys = ON');
            $see(new Connections(), self::container($database));
            for ($request = 1; $request <= 2; $request++) {
                self::assertSame(0, (int) $database->fetchOne('PRAGMA foreign_keys'));
                self::assertFalse($database->getNativeConnection()->getAttribute(\PDO::ATTR_PERSISTENT));
                $database->executeStatement('PRAGMA foreign_keys = ON');
                $database->close();
            }
        } finally {
            \unlink($file);
        }
    }

    /** @return iterable<string, array{bool, \Closure(Connections, Container): mixed}> */
    public static function persistence(): iterable
    {
        $sees = [
            'before the first request' => static fn (Connections $it, Container $in) => $it->revive($in),
            'after a request' => static fn (Connections $it, Container $in) => $it->settle($in),
            'before a fork' => static fn (Connections $it, Container $in) => $it->close($in),
        ];
        foreach ($sees as $when => $see) {
            yield "open, $when" => [true, $see];
            yield $when => [false, $see];
        }
    }

    public function testWhatIsInMemoryOutlivesATransactionPastDoctrine(): void
    {
        $database = DriverManager::getConnection(['driver' => 'pdo_sqlite', 'memory' => true]);
        $database->executeStatement('CREATE TABLE goods (name TEXT)');
        $database->executeStatement('BEGIN');
        $database->insert('goods', ['name' => 'one']);
        (new Connections())->settle(self::container($database));
        self::assertSame(0, (int) $database->fetchOne('SELECT COUNT(*) FROM goods'));
    }

    public function testWithoutAutoCommitTheNextRequestHasATransactionOfItsOwn(): void
    {
        $settings = new Configuration();
        $settings->setAutoCommit(false);
        $database = DriverManager::getConnection(['driver' => 'pdo_sqlite', 'memory' => true], $settings);
        $database->executeStatement('CREATE TABLE goods (name TEXT)');
        $database->commit();
        $database->insert('goods', ['name' => 'one']);
        (new Connections())->settle(self::container($database));
        self::assertSame(1, $database->getTransactionNestingLevel());
        self::assertSame(0, (int) $database->fetchOne('SELECT COUNT(*) FROM goods'));
    }

    /** @return Connection&MockObject that is to be closed once, because it does not answer */
    private function lost(): Connection
    {
        $lost = $this->createMock(Connection::class);
        $lost->method('isConnected')->willReturn(true);
        $lost->method('getParams')->willReturn([]);
        $lost->method('getDatabasePlatform')->willReturn(new SqlitePlatform());
        $lost->expects(self::once())->method('close');

        return $lost;
    }

    public function testATransactionThatCanNotBeRolledBackGoesWithItsConnection(): void
    {
        $lost = $this->lost();
        $lost->method('getTransactionNestingLevel')->willReturn(2);
        $lost->expects(self::once())->method('rollBack')->willThrowException(new Exception('server has gone away'));
        (new Connections())->settle(self::container($lost));
    }

    public function testAConnectionOfMysqliWithoutAutoCommitIsOpenedAnew(): void
    {
        if (!\extension_loaded('mysqli')) {
            self::markTestSkipped('PHP has no mysqli');
        }
        $native = (new \ReflectionClass(\mysqli::class))->newInstanceWithoutConstructor();
        foreach (['0' => 1, '1' => 0] as $mode => $closed) {
            $database = $this->createMock(Connection::class);
            $database->method('isConnected')->willReturn(true);
            $database->method('getParams')->willReturn([]);
            $database->method('getTransactionNestingLevel')->willReturn(0);
            $database->method('isAutoCommit')->willReturn(true);
            $database->method('getNativeConnection')->willReturn($native);
            $database->method('getDatabasePlatform')->willReturn(new MySQLPlatform());
            $database->method('fetchOne')->with('SELECT @@autocommit')->willReturn((string) $mode);
            $database->expects(self::exactly($closed))->method('close');
            (new Connections())->settle(self::container($database));
        }
    }

    public function testAfterAFailureConnectionsAreAskedAtOnce(): void
    {
        $lost = $this->lost();
        $gone = new Exception('server has gone away');
        $lost->expects(self::once())->method('executeQuery')->willThrowException($gone);
        $connections = new Connections();
        $connections->settle(null);
        $connections->doubt();
        $connections->revive(self::container($lost));
        $connections->revive(self::container($lost));
    }

    public function testAConnectionThatWasLostWhileNobodyAskedIsClosed(): void
    {
        $lost = $this->lost();
        $gone = new Exception('server has gone away');
        $lost->expects(self::once())->method('executeQuery')->willThrowException($gone);
        $connections = new Connections();
        $connections->settle(null);
        $connections->revive(self::container($lost));
        // As if a request had ended 11 seconds ago.
        (function (): void {
            $this->used -= 11_000_000_000;
        })->call($connections);
        $connections->revive(self::container($lost));
    }

    public function testBeforeAForkWhatProcessesShareIsClosed(): void
    {
        $file = \tempnam(\sys_get_temp_dir(), 'connections-');
        try {
            $shared = DriverManager::getConnection(['driver' => 'pdo_sqlite', 'path' => $file]);
            $shared->executeStatement('CREATE TABLE goods (name TEXT)');
            (new Connections())->close(self::container($shared));
            self::assertFalse($shared->isConnected());
            self::assertSame(0, (int) $shared->fetchOne('SELECT COUNT(*) FROM goods'), 'it is opened anew');
        } finally {
            \unlink($file);
        }
        $own = DriverManager::getConnection(['driver' => 'pdo_sqlite', 'memory' => true]);
        $own->executeStatement('CREATE TABLE goods (name TEXT)');
        (new Connections())->close(self::container($own));
        self::assertSame(0, (int) $own->fetchOne('SELECT COUNT(*) FROM goods'), 'each process has a copy');
    }

    public function testWithoutDoctrineThereIsNothingToDo(): void
    {
        $connections = new Connections();
        $connections->settle(new Container());
        $connections->settle(null);
        $connections->revive(null);
        $connections->close(null);
        $this->addToAssertionCount(1);
    }
}
