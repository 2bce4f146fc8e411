// What the page says, in each of its languages.

export const WORDS = {
  en: {
    "shade": "Show how sure each word is", "page-language": "Language of this page", "source-text": "Text", "from": "From",
    "to": "Into", "swap": "The other way round", "clear": "Clear", "translation": "Translation", "copy": "Copy",
    "look": "See the attention", "hint": "Point at a word to see where it comes from; press it for others.",
    "glossary": "Glossary", "glossary-help": "A line for each term: term = translation. It is kept in this browser.",
    "documents": "Documents", "documents-help": "A document is translated and keeps its form:", "progress": "How far the document is",
    "history": "History", "history-help": "Kept in this browser only.", "forget": "Forget all", "key": "API key",
    "key-help": "This server wants a key:", "api": "The programming interface", "detect": "Find out", "found": "{} (found out)",
    "working": "Translating …", "done": "", "copied": "Copied", "characters": "{} of {} characters", "others": "Other words",
    "none": "No others", "bad-line": "Line {} of the glossary has no =.",
  },
  zh: {
    "shade": "显示每个词有多大把握", "page-language": "本页的语言", "source-text": "原文", "from": "源语言",
    "to": "目标语言", "swap": "互换方向", "clear": "清空", "translation": "译文", "copy": "复制",
    "look": "查看注意力", "hint": "指向一个词，看它来自何处；点按可换词。",
    "glossary": "术语表", "glossary-help": "每行一个术语：术语 = 译法。只保存在本浏览器中。",
    "documents": "文档", "documents-help": "翻译一个文档，保持其格式：", "progress": "文档的进度",
    "history": "历史", "history-help": "只保存在本浏览器中。", "forget": "全部忘记", "key": "API 密钥",
    "key-help": "此服务器需要密钥：", "api": "编程接口", "detect": "自动判断", "found": "{}（自动判断）",
    "working": "正在翻译……", "done": "", "copied": "已复制", "characters": "{} / {} 个字符", "others": "换一个词",
    "none": "没有别的词", "bad-line": "术语表第 {} 行没有 =。",
  },
};
