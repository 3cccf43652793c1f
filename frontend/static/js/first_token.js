// An app that has no token yet gets its first one: the commands of the page then work as they are.

document.getElementById("first-token")?.requestSubmit();
