<?php

declare(strict_types=1);

namespace Pronghorn\Symfony\Tests;

use PHPUnit\Framework\TestCase;
use Pronghorn\Cache\Tests\Support\ArrayStore;
use Pronghorn\Symfony\DependencyInjection\PronghornExtension;
use Pronghorn\Symfony\Lock\PronghornStore;
use Symfony\Component\DependencyInjection\ContainerBuilder;
use Symfony\Component\Lock\Exception\InvalidTtlException;
use Symfony\Component\Lock\Exception\LockConflictedException;
use Symfony\Component\Lock\Key;
use Symfony\Component\Lock\LockFactory;

final class LockTest extends TestCase
{
    private ArrayStore $storage;
    private PronghornStore $store;

    protected function setUp(): void
    {
        $this->storage = new ArrayStore();
        $this->store = new PronghornStore($this->storage, 10);
    }

    /** With another name FrameworkBundle gives its own factory, whose locks end at this machine. */
    public function testAnArgumentIsGivenTheFactoryByItsName(): void
    {
        $container = new ContainerBuilder();
        (new PronghornExtension())->load([], $container);
        $alias = $container->getAlias(LockFactory::class . ' $pronghornLockFactory');
        self::assertSame('pronghorn.lock_factory', (string) $alias);
    }

    public function testALockIsItsOwners(): void
    {
        [$mine, $others] = [new Key('import'), new Key('import')];
        $this->store->save($mine);
        $this->store->save($mine);
        self::assertTrue($this->store->exists($mine));
        self::assertFalse($this->store->exists($others));
        $this->store->delete($others);
        self::assertTrue($this->store->exists($mine), 'who has it not does not end it');
        foreach (['save', 'putOffExpiration'] as $method) {
            try {
                $this->store->$method($others, 5.0);
                self::fail($method);
            } catch (LockConflictedException) {
            }
        }
        $this->store->delete($mine);
        self::assertFalse($this->store->exists($mine));
        $this->store->save($others);
        self::assertTrue($this->store->exists($others));
    }

    public function testANameMayBeLong(): void
    {
        $name = str_repeat('n', 1 << 20);
        [$mine, $others, $another] = [new Key($name), new Key($name), new Key("$name.")];
        $this->store->save($mine);
        $this->store->save($another);
        self::assertTrue($this->store->exists($mine));
        $this->expectException(LockConflictedException::class);
        $this->store->save($others);
    }

    public function testItEndsByItselfUnlessItIsPutOff(): void
    {
        [$mine, $others] = [new Key('import'), new Key('import')];
        $this->store->save($mine);
        $this->storage->now = 9;
        $this->store->putOffExpiration($mine, 100);
        $this->storage->now = 50;
        self::assertTrue($this->store->exists($mine));
        $this->storage->now = 110;
        $this->store->save($others);
        self::assertFalse($this->store->exists($mine));
    }

    public function testTimesThatMakeNoSense(): void
    {
        $this->expectException(InvalidTtlException::class);
        $this->store->putOffExpiration(new Key('import'), 0);
    }

    public function testTheFactoryTakesIt(): void
    {
        $locks = new LockFactory($this->store);
        $lock = $locks->createLock('import', 5);
        self::assertTrue($lock->acquire());
        self::assertFalse($locks->createLock('import', 5)->acquire());
        $lock->release();
        self::assertTrue($locks->createLock('import', 5)->acquire());
    }
}
