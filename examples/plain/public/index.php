<?php

// Written for php-fpm, and for no server in particular.

declare(strict_types=1);

session_start();
if ($_SERVER['REQUEST_METHOD'] === 'POST') {
    $_SESSION['name'] = $_POST['name'] ?? '';
    header('Location: /', true, 303);
    exit;
}
if (strtok($_SERVER['REQUEST_URI'], '?') !== '/') {
    http_response_code(404);
    exit("There is no such page.\n");
}
$_SESSION['visits'] = ($_SESSION['visits'] ?? 0) + 1;
?>
<!DOCTYPE html>
<title>Plain</title>
<p>Hello, <?= htmlspecialchars($_SESSION['name'] ?? 'stranger') ?>! This is visit <?= $_SESSION['visits'] ?>.</p>
<form method="post"><input name="name"> <button>That is my name</button></form>
