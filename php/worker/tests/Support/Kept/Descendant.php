<?php

declare(strict_types=1);

namespace Pronghorn\Tests\Support\Kept;

final class Descendant extends Ancestor
{
    public readonly int $once;
    public int $typed;
    public mixed $plain = 1.5;
    /** @var string without a type that PHP knows */
    public $bare = 'bare';
    public array $list = ['redeclared'];
    private string $secret = 'descendant';

    public function change(object $service): void
    {
        parent::change($service);
        $this->secret = 'also changed';
        $this->once = 1;
        $this->typed = 1;
        unset($this->plain);
    }

    public function look(): array
    {
        return [...parent::look(), $this->secret, isset($this->typed), $this->plain ?? 'unset'];
    }
}
