<?php

declare(strict_types=1);

namespace Pronghorn\Laravel\Tests;

use Illuminate\Config\Repository;
use Illuminate\Database\Connection;
use Illuminate\Database\Connectors\SQLiteConnector;
use Illuminate\Database\DatabaseManager;
use Illuminate\Database\DatabaseServiceProvider;
use Illuminate\Database\QueryException;
use Illuminate\Database\SQLiteConnection;
use Illuminate\Foundation\Application;
use PHPUnit\Framework\TestCase;
use Pronghorn\Laravel\Sandbox;

final class ConnectionsTest extends TestCase
{
    private Application $app;
    private string $file;

    protected function setUp(): void
    {
        $this->file = (string) \tempnam(\sys_get_temp_dir(), 'connections-');
        (new \PDO("sqlite:$this->file"))->exec('CREATE TABLE goods (name TEXT)');
        $this->app = new Application('/nowhere');
        $this->app->instance('config', new Repository(['database' => ['default' => 'main', 'connections' => [
            'main' => ['driver' => 'sqlite', 'database' => $this->file],
            'memory' => ['driver' => 'sqlite', 'database' => ':memory:'],
        ]]]));
        $this->app->register(DatabaseServiceProvider::class);
    }

    protected function tearDown(): void
    {
        \unlink($this->file);
    }

    private function databases(): DatabaseManager
    {
        return $this->app->make('db');
    }

    private function connection(): Connection
    {
        return $this->databases()->connection();
    }

    /**
     * @dataProvider requests
     * @param \Closure(Connection): mixed $request
     */
    public function testTheNextRequestMeetsNothingOfTheLastOne(bool $isOfBoot, bool $goesOn, \Closure $request): void
    {
        $isOfBoot && $this->connection()->getPdo();
        $held = $isOfBoot ? $this->connection() : null;
        $sandbox = new Sandbox($this->app);
        for ($count = 1; $count <= 2; $count++) {
            // As an object that is gone gives its number to another one.
            $pdo = $this->connection()->getPdo();
            $attributes = $pdo->getAttribute(\PDO::ATTR_ERRMODE);
            $request($this->connection());
            $sandbox->restore();
            $next = $this->connection();
            self::assertSame($isOfBoot, $next === $held);
            self::assertSame(0, $next->transactionLevel());
            self::assertSame(['', false, []], [$next->getTablePrefix(), $next->logging(), $next->getQueryLog()]);
            self::assertSame($goesOn, $next->getPdo() === $pdo);
            self::assertSame($attributes, $next->getPdo()->getAttribute(\PDO::ATTR_ERRMODE));
            $next->insert('INSERT INTO goods VALUES (?)', ["next $count"]);
            $sandbox->restore();
            $names = \array_column($this->connection()->select('SELECT name FROM goods ORDER BY name'), 'name');
            self::assertSame(\array_slice(['next 1', 'next 2'], 0, $count), $names);
            $sandbox->restore();
        }
    }

    private static function failing(Connection $connection, string $sql, string $method = 'statement'): void
    {
        self::tryTo(static function () use ($connection, $sql, $method): void {
            $result = $connection->$method($sql);
            \is_iterable($result) && \iterator_to_array($result);
        });
    }

    /** @param \Closure(): mixed $function one that makes a statement fail */
    private static function tryTo(\Closure $function): void
    {
        try {
            $function();
            self::fail('The statement has not failed.');
        } catch (QueryException) {
            // As many a request has it.
        }
    }

    /** @return iterable<string, array{bool, bool, \Closure(Connection): mixed}> */
    public static function requests(): iterable
    {
        $insert = static fn (Connection $it): bool => $it->insert("INSERT INTO goods VALUES ('of a visitor')");
        $going = [
            'nothing' => static fn (Connection $it): bool => true,
            'reads' => static fn (Connection $it): array => $it->select(' select 1'),
            'a read that fails' => static fn (Connection $it)
                => self::failing($it, 'SELECT name FROM nothing', 'select'),
            'no listeners' => static function (Connection $it): void {
                $it->unsetEventDispatcher();
                $it->select('SELECT 1');
            },
            'properties' => static function (Connection $it): void {
                $it->setTablePrefix('of_a_visitor_');
                $it->enableQueryLog();
                $it->select('SELECT 1');
            },
            'transactions' => static function (Connection $it) use ($insert): void {
                $it->beginTransaction();
                $it->beginTransaction();
                $insert($it);
            },
            'a transaction in place of one that was ended' => static function (Connection $it) use ($insert): void {
                $it->beginTransaction();
                $it->getPdo()->exec('ROLLBACK');
                $it->getPdo()->exec('BEGIN');
                $insert($it);
            },
        ];
        $ending = [
            'a transaction of the PDO' => static function (Connection $it) use ($insert): void {
                $it->getPdo()->beginTransaction();
                $insert($it);
            },
            'a transaction of SQL' => static function (Connection $it) use ($insert): void {
                $it->statement('BEGIN');
                $insert($it);
            },
            'a transaction of SQL on the PDO' => static function (Connection $it) use ($insert): void {
                $it->getPdo()->exec('BEGIN');
                $insert($it);
            },
            'a transaction that is none any more' => static function (Connection $it): void {
                $it->beginTransaction();
                $it->getPdo()->exec('ROLLBACK');
            },
            'a setting' => static fn (Connection $it): bool => $it->statement('PRAGMA foreign_keys = ON'),
            'a second statement' => static fn (Connection $it): bool
                => $it->unprepared('SELECT 1; PRAGMA foreign_keys = ON'),
            'a variable' => static fn (Connection $it): array
                => $it->pretend(static fn (): array => $it->select('SELECT @a := 1')),
            'a lock' => static fn (Connection $it): array
                => $it->pretend(static fn (): array => $it->select("SELECT GET_LOCK('a', 1)")),
            'a statement that fails' => static fn (Connection $it) => self::failing($it, 'CALL p()'),
            'the same, after others' => static function (Connection $it): void {
                $it->transaction(static fn (): array => $it->select('SELECT 1'));
                self::failing($it, 'DO $$ BEGIN PERFORM f(); RAISE EXCEPTION \'x\'; END $$');
                $it->select('SELECT 1');
            },
            'several that fail at once' => static fn (Connection $it)
                => self::failing($it, 'PRAGMA foreign_keys = ON; CALL p()', 'unprepared'),
            'a cursor that fails' => static fn (Connection $it)
                => self::failing($it, 'SELECT GET_LOCK(1)', 'cursor'),
            'a transaction that fails with its statement' => static fn (Connection $it)
                => self::tryTo(static fn () => $it->transaction(static fn () => $it->statement('CALL p()'), 2)),
            'one that fails and takes the listeners' => static function (Connection $it): void {
                $it->unsetEventDispatcher();
                self::failing($it, 'CALL p()');
            },
            'one that fails on a connection that was lost' => static function (Connection $it): void {
                $it->disconnect();
                self::failing($it, 'CALL p()');
            },
            'a setting by another connection on the PDO' => static function (Connection $it): void {
                $other = new SQLiteConnection($it->getPdo());
                $other->setEventDispatcher($it->getEventDispatcher());
                $other->statement('PRAGMA foreign_keys = ON');
            },
            'a table of its own' => static fn (Connection $it): bool => $it->statement('CREATE TEMP TABLE t (a)'),
            'an attribute' => static fn (Connection $it): bool
                => $it->getPdo()->setAttribute(\PDO::ATTR_ERRMODE, \PDO::ERRMODE_SILENT),
            'a setting without listeners' => static function (Connection $it): void {
                $it->unsetEventDispatcher();
                $it->statement('PRAGMA foreign_keys = ON');
            },
            'a PDO of its own' => static fn (Connection $it): Connection => $it->setPdo(new \PDO('sqlite::memory:')),
        ];
        foreach ([false, true] as $isOfBoot) {
            $of = $isOfBoot ? ', opened at the boot' : '';
            foreach (['going' => $going, 'ending' => $ending] as $kind => $requests) {
                foreach ($requests as $name => $request) {
                    yield $name . $of => [$isOfBoot, $kind === 'going', $request];
                }
            }
        }
    }

    /**
     * A transaction that a destructor begins, of what goes with the request.
     *
     * @dataProvider lateTransactions
     * @param \Closure(Connection, \PDO): mixed $begin
     */
    public function testALateTransactionTakesNoWriteOfTheNextVisitorAlong(bool $isOfBoot, \Closure $begin): void
    {
        $isOfBoot && $this->connection()->getPdo();
        $sandbox = new Sandbox($this->app);
        for ($count = 1; $count <= 2; $count++) {
            $pdo = $this->connection()->getPdo();
            $isRun = false;
            $this->app->instance('left', new class (function () use ($begin, $pdo, &$isRun): void {
                $begin($this->connection(), $pdo);
                $isRun = true;
            }) {
                public function __construct(private readonly \Closure $end)
                {
                }

                public function __destruct()
                {
                    ($this->end)();
                }
            });
            unset($pdo);
            $sandbox->restore();
            self::assertTrue($isRun);
            self::assertSame(0, $this->connection()->transactionLevel());
            self::assertFalse($this->connection()->getPdo()->inTransaction());
            $this->connection()->transaction(static function (Connection $it) use ($count): void {
                $it->insert('INSERT INTO goods VALUES (?)', ["next $count"]);
            });
            $sandbox->restore();
            $names = (new \PDO("sqlite:$this->file"))->query('SELECT name FROM goods ORDER BY name');
            self::assertSame(\array_slice(['next 1', 'next 2'], 0, $count), $names->fetchAll(\PDO::FETCH_COLUMN));
            unset($names);
        }
    }

    /** @return iterable<string, array{bool, \Closure(Connection, \PDO): mixed}> */
    public static function lateTransactions(): iterable
    {
        $insert = "INSERT INTO goods VALUES ('of a visitor')";
        $begin = [
            'of Laravel' => static function (Connection $it) use ($insert): void {
                $it->beginTransaction();
                $it->insert($insert);
            },
            'of a PDO that was kept' => static function (Connection $it, \PDO $pdo) use ($insert): void {
                $pdo->beginTransaction();
                $pdo->exec($insert);
            },
            'of SQL' => static function (Connection $it, \PDO $pdo) use ($insert): void {
                $pdo->exec('BEGIN');
                $pdo->exec($insert);
            },
        ];
        foreach ($begin as $name => $function) {
            yield $name => [false, $function];
            yield "$name, opened at the boot" => [true, $function];
        }
    }

    /** @dataProvider leftTransactions */
    public function testWhatWasToFollowALeftTransactionStaysAway(bool $isOfBoot, \Closure $leave): void
    {
        if (!\method_exists(Connection::class, 'afterCommit')) {
            self::markTestSkipped('This Laravel has nothing that follows a commit.');
        }
        $isOfBoot && $this->connection()->getPdo();
        $sandbox = new Sandbox($this->app);
        $run = [];
        for ($count = 1; $count <= 2; $count++) {
            $leave($this->connection(), static function () use (&$run): void {
                $run[] = 'of a visitor';
            });
            $sandbox->restore();
            $this->connection()->transaction(static function (Connection $it) use (&$run, $count): void {
                $it->insert('INSERT INTO goods VALUES (?)', ["next $count"]);
                $it->afterCommit(static function () use (&$run, $count): void {
                    $run[] = "next $count";
                });
            });
            self::assertSame(\array_slice(['next 1', 'next 2'], 0, $count), $run);
            $sandbox->restore();
        }
        self::assertSame(['next 1', 'next 2'], $run);
    }

    /** @return iterable<string, array{bool, \Closure(Connection, \Closure): void}> */
    public static function leftTransactions(): iterable
    {
        $leave = [
            'open' => static function (Connection $it, \Closure $work): void {
                $it->beginTransaction();
                $it->afterCommit($work);
            },
            'open, one in another' => static function (Connection $it, \Closure $work): void {
                $it->beginTransaction();
                $it->beginTransaction();
                $it->afterCommit($work);
                $it->commit();
            },
            'ended by the database' => static function (Connection $it, \Closure $work): void {
                $it->beginTransaction();
                $it->afterCommit($work);
                $it->getPdo()->exec('ROLLBACK');
            },
            'on a connection that was lost' => static function (Connection $it, \Closure $work): void {
                $it->beginTransaction();
                $it->afterCommit($work);
                $it->disconnect();
            },
        ];
        foreach ($leave as $name => $function) {
            yield $name => [false, $function];
            yield "$name, opened at the boot" => [true, $function];
        }
    }

    public function testAnotherConfigurationHasAnotherConnection(): void
    {
        $sandbox = new Sandbox($this->app);
        $first = $this->connection()->getPdo();
        $sandbox->restore();
        $this->app->make('config')->set('database.connections.main.foreign_key_constraints', true);
        $second = $this->connection()->getPdo();
        $sandbox->restore();
        $this->app->make('config')->set('database.connections.main.foreign_key_constraints', true);
        self::assertSame($second, $this->connection()->getPdo());
        $sandbox->restore();
        self::assertNotSame($first, $second);
        self::assertSame($first, $this->connection()->getPdo());
    }

    public function testWhoAsksAgainHasLostIt(): void
    {
        $sandbox = new Sandbox($this->app);
        $lost = $this->connection()->getPdo();
        $sandbox->restore();
        self::assertSame($lost, $this->connection()->getPdo());
        $this->databases()->reconnect();
        $new = $this->connection()->getPdo();
        self::assertNotSame($lost, $new);
        $sandbox->restore();
        self::assertSame($new, $this->connection()->getPdo());
    }

    public function testWhatHoldsAConnectionOfTheBootGoesOnWithIt(): void
    {
        $held = $this->connection();
        $held->getPdo();
        $sandbox = new Sandbox($this->app);
        $this->databases()->purge();
        $sandbox->restore();
        $held->insert("INSERT INTO goods VALUES ('one')");
        self::assertSame($held, $this->connection());
        $sandbox->restore();
        $sandbox->disconnect();
        $sandbox = $sandbox->again();
        self::assertSame(1, (int) $held->selectOne('SELECT COUNT(*) AS count FROM goods')->count);
        $sandbox->restore();
    }

    public function testWhatIsInMemoryStaysWithTheBoot(): void
    {
        $this->databases()->connection('memory')->statement('CREATE TABLE t (a)');
        $sandbox = new Sandbox($this->app);
        foreach (['beginTransaction' => [], 'exec' => ['BEGIN']] as $begin => $arguments) {
            $this->databases()->connection('memory')->getPdo()->$begin(...$arguments);
            $this->databases()->connection('memory')->insert('INSERT INTO t VALUES (1)');
            $sandbox->restore();
            self::assertSame([], $this->databases()->connection('memory')->select('SELECT * FROM t'));
        }
        $sandbox->disconnect();
        self::assertSame([], $this->databases()->connection('memory')->select('SELECT * FROM t'));
    }

    public function testConnectionsThatAreNotKeptAreClosed(): void
    {
        $held = $this->connection();
        $held->getPdo();
        $sandbox = new Sandbox($this->app, [], false);
        foreach ([1, 2] as $_) {
            $pdo = \WeakReference::create($this->connection()->getPdo());
            $sandbox->restore();
            self::assertNull($pdo->get());
            self::assertSame($held, $this->connection());
        }
    }

    /** The first statement opens the connection, and fails. */
    public function testAConnectionGoesNotOnAfterItsFirstStatementHasFailed(): void
    {
        $sandbox = new Sandbox($this->app);
        self::failing($this->connection(), 'CALL p()');
        $pdo = $this->connection()->getPdo();
        $sandbox->restore();
        self::assertNotSame($pdo, $this->connection()->getPdo());
    }

    /** PHP gives a persistent PDO out again after it was closed, with all that was set. */
    public function testNoConnectionIsPersistent(): void
    {
        $options = [\PDO::ATTR_PERSISTENT => true, \PDO::ATTR_TIMEOUT => 7];
        $persistent = ['driver' => 'sqlite', 'database' => $this->file, 'options' => $options];
        $url = "sqlite://localhost/$this->file?options%5B12%5D=1";
        $named = [
            'main' => $persistent,
            'url' => ['driver' => 'sqlite', 'url' => $url],
            'split' => ['read' => ['options' => $options], 'write' => ['options' => $options]] + $persistent,
        ];
        $this->app->make('config')->set('database.connections', $named);
        $this->databases()->extend('own', fn (array $config): Connection => new SQLiteConnection(new \PDO(
            "sqlite:$this->file",
            options: $config['options']
        )));
        $this->app->make('config')->set('database.connections.own', ['driver' => 'own'] + $persistent);
        foreach ([true, true, false, false] as $keeps) {
            $sandbox = new Sandbox($this->app, [], $keeps);
            $this->app->make('config')->set('database.connections.later', $persistent);
            foreach ([...\array_keys($named), 'own', 'later'] as $name) {
                $connection = $this->databases()->connection($name);
                foreach ([$connection->getPdo(), $connection->getReadPdo()] as $pdo) {
                    self::assertFalse($pdo->getAttribute(\PDO::ATTR_PERSISTENT), $name);
                    self::assertSame('0', (string) $pdo->query('PRAGMA foreign_keys')->fetchColumn(), $name);
                }
                $connection->statement('PRAGMA foreign_keys = ON');
            }
            unset($pdo, $connection);
            $sandbox->restore();
        }
    }

    /** By the connector's own defaults. */
    public function testNoConnectorOpensAPersistentConnection(): void
    {
        $this->app->bind('db.connector.sqlite', static function (): SQLiteConnector {
            $connector = new SQLiteConnector();
            $connector->setDefaultOptions([\PDO::ATTR_PERSISTENT => true] + $connector->getDefaultOptions());

            return $connector;
        });
        $sandbox = new Sandbox($this->app);
        self::assertFalse($this->connection()->getPdo()->getAttribute(\PDO::ATTR_PERSISTENT));
        $sandbox->restore();
    }

    /** Their clients keep the database of `SELECT`, `WATCH`, `MULTI` and `SUBSCRIBE`. */
    public function testNoClientOfRedisIsPersistent(): void
    {
        $given = [
            'client' => 'phpredis',
            'options' => ['persistent' => true, 'prefix' => 'shop:'],
            'default' => ['host' => 'cache', 'persistent' => 1, 'persistent_id' => 'shop', 'options' => [
                'persistent' => true,
            ]],
            'url' => ['url' => 'redis://cache:6379?persistent=1&timeout=2'],
            'clusters' => ['main' => [['host' => 'cache', 'persistent' => 'yes']]],
            'persistent' => ['host' => 'other', 'persistent' => false],
        ];
        $this->app->make('config')->set('database.redis', $given);
        new Sandbox($this->app);
        $given['options']['persistent'] = false;
        $given['default']['persistent'] = $given['default']['options']['persistent'] = false;
        $given['url']['url'] = 'redis://cache:6379?persistent=0&timeout=2';
        $given['clusters']['main'][0]['persistent'] = false;
        self::assertSame($given, $this->app->make('config')->get('database.redis'));
    }
}
