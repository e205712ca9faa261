<?php

declare(strict_types=1);

namespace Pronghorn\Symfony\Tests;

use PHPUnit\Framework\TestCase;
use Pronghorn\Symfony\SessionSettings;
use Symfony\Component\DependencyInjection\Container;
use Symfony\Component\HttpFoundation\Session\Storage\Handler\NativeFileSessionHandler;

final class SessionSettingsTest extends TestCase
{
    private string $path;

    protected function setUp(): void
    {
        $this->path = \sys_get_temp_dir() . '/pronghorn-sessions-' . \getmypid();
    }

    protected function tearDown(): void
    {
        $this->resetPhp();
        @\rmdir($this->path);
    }

    /** @runInSeparateProcess */
    public function testADirectoryThatIsConfiguredHoldsForLaterCalls(): void
    {
        $settings = new SessionSettings();
        $container = $this->container($this->path);
        $settings->apply();
        new NativeFileSessionHandler($this->path);
        $settings->keep($container);
        $this->resetPhp();
        $settings->keep($container); // a call without a session
        $settings->apply();
        self::assertSame($this->path, \ini_get('session.save_path'));
        self::assertSame('files', \ini_get('session.save_handler'));

        $settings->forget();
        $this->resetPhp();
        $settings->apply();
        self::assertNotSame($this->path, \ini_get('session.save_path'));
    }

    /**
     * @runInSeparateProcess
     * @testWith [null]
     *           ["/configured"]
     */
    public function testWhatACallSetsIsOfThatCall(?string $configured): void
    {
        $settings = new SessionSettings();
        $before = \ini_get('session.save_path');
        $settings->apply();
        \ini_set('session.save_path', $this->path);
        $settings->keep($this->container($configured));
        $settings->keep(null);
        $this->resetPhp();
        $settings->apply();
        self::assertSame($before, \ini_get('session.save_path'));
    }

    /**
     * Symfony 5.4 is set up by the boot.
     *
     * @runInSeparateProcess
     */
    public function testWhatTheBootHasSetIsThere(): void
    {
        \ini_set('session.save_path', $this->path);
        $settings = new SessionSettings();
        $settings->apply();
        $settings->keep($this->container($this->path));
        $this->resetPhp();
        $settings->apply();
        self::assertNotSame($this->path, \ini_get('session.save_path'));
    }

    private function container(?string $path): Container
    {
        $container = new Container();
        $container->setParameter('session.save_path', $path);

        return $container;
    }

    /** As the server does it after each call. */
    private function resetPhp(): void
    {
        \ini_restore('session.save_path');
        \ini_restore('session.save_handler');
    }
}
