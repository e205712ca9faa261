<?php

declare(strict_types=1);

namespace Pronghorn\Laravel\Tests;

use Illuminate\Config\Repository;
use Illuminate\Database\Connection;
use Illuminate\Database\DatabaseManager;
use Illuminate\Database\DatabaseServiceProvider;
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

    /** @return iterable<string, array{bool, bool, \Closure(Connection): mixed}> */
    public static function requests(): iterable
    {
        $insert = static fn (Connection $it): bool => $it->insert("INSERT INTO goods VALUES ('of a visitor')");
        $going = [
            'nothing' => static fn (Connection $it): bool => true,
            'reads' => static fn (Connection $it): array => $it->select(' select 1'),
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
            'a table of its own' => static fn (Connection $it): bool => $it->statement('CREATE TEMP TABLE t (a)'),
            'an attribute' => static fn (Connection $it): bool
                => $it->getPdo()->setAttribute(\PDO::ATTR_ERRMODE, \PDO::ERRMODE_SILENT),
            'no listeners' => static function (Connection $it): void {
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
}
